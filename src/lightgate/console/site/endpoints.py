"""All endpoints of the console's API, from the tables of its packages."""

from __future__ import annotations

from typing import Final

from lightgate.console.admin.routes import ADMIN_READS
from lightgate.console.api.routes import API_ROUTES
from lightgate.console.charts.routes import CHART_ROUTES
from lightgate.console.work.routes import WORK_ROUTES

ENDPOINTS: Final = (*API_ROUTES, *CHART_ROUTES, *WORK_ROUTES, *ADMIN_READS)
