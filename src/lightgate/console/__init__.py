"""The control plane: carries journals into the ledger, and shows what is in it."""
