// Use a sign-in link up. Its code is behind the #, which no server and no log gets to see.

const code = location.hash.slice(1);
history.replaceState(null, "", location.pathname); // nor does it stay in the address or the history

const said = document.getElementById("said");

async function enter() {
  const answer = await fetch("/api/session", {
    method: "POST",
    headers: { authorization: `Link ${code}` },
    cache: "no-store",
    credentials: "same-origin",
  });
  if (answer.ok) {
    location.replace("/");
    return;
  }
  const told = await answer.text();
  let words = told.trim();
  try {
    words = JSON.parse(told).message;
  } catch {
    // a plain sentence
  }
  if (said) said.textContent = words || "The console does not answer.";
}

if (code) {
  if (said) said.textContent = "Signing in…";
  enter().catch(() => {
    if (said) said.textContent = "The console does not answer.";
  });
}
