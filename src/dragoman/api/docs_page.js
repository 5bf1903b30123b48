"use strict";

// Tries an operation that reads: the form's values become the path, the query and the headers of a
// request to this node. Answers are shown as text, never as HTML. The token is read from its field for
// each request, and is kept nowhere else.
async function tryOperation(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = { accept: "application/json" };
  const token = document.querySelector("#token").value.trim();
  if (token !== "") {
    headers.authorization = `Bearer ${token}`;
  }
  for (const input of form.querySelectorAll("input")) {
    const where = input.dataset.in;
    if (where === "path") {
      path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    } else if (input.value !== "" && where === "query") {
      query.set(input.name, input.value);
    } else if (input.value !== "" && where === "header") {
      headers[input.name] = input.value;
    }
  }
  const result = form.querySelector(".result");
  result.hidden = false;
  result.textContent = "…";
  const url = query.size ? `${path}?${query}` : path;
  try {
    // With a token, the browser sends no password of its own, and does not ask for one.
    const credentials = token === "" ? "same-origin" : "omit";
    const response = await fetch(url, { headers, credentials });
    let text = await response.text();
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // Not JSON: shown as it is.
    }
    result.textContent = `GET ${url}\n${response.status} ${response.statusText}\n\n${text}`;
  } catch (error) {
    result.textContent = `GET ${url}\n${error}`;
  }
}

document.querySelector("#login").hidden = false;
for (const form of document.querySelectorAll("form.try")) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tryOperation(form);
  });
}
