"""What hostile pages try, as scripts. Each gives a text; it has `LEAKED` if the page has read
something of the node.
"""

from __future__ import annotations

#: In scripts, `NODE` is the node's URL as the page knows it, and `NAME` a topic that the page tries
#: to create. The topic `kept` is there.
_HELPERS = """
const node = 'NODE', name = 'NAME';
const create = JSON.stringify({name: name});
const credentials = 'include';
const read = async (response) => {
  const text = await response.text();
  return text.includes('"kept"') ? 'LEAKED ' + text.slice(0, 80)
    : response.type + ' ' + response.status + ' ' + text.slice(0, 300);
};
const attempt = async (work) => {
  try { return await work(); } catch (error) { return error.name; }
};
const wait = (element, act) => new Promise((done) => {
  const timer = setTimeout(() => done('nothing'), 3000);
  const end = (text) => { clearTimeout(timer); done(text); };
  element.onload = () => end('loaded');
  element.onerror = () => end('error');
  act();
});
const embed = (element) => wait(element, () => document.body.append(element));
const framed = async (act) => {
  const frame = document.createElement('iframe');
  frame.name = 'f' + Math.random();
  // An empty frame loads at once, which is not the answer.
  document.body.append(frame);
  const result = await wait(frame, () => act(frame));
  try {
    const text = frame.contentDocument.body.innerText;
    return text.includes('"kept"') ? 'LEAKED' : result + ', not readable';
  } catch (error) { return result + ', ' + error.name; }
};
const form = (encoding, key, value) => framed((frame) => {
  const made = document.createElement('form');
  made.method = 'POST';
  made.action = node + '/api/v1/topics';
  made.enctype = encoding;
  made.target = frame.name;
  const field = document.createElement('input');
  field.name = key;
  field.value = value;
  made.append(field);
  document.body.append(made);
  made.submit();
});
const fetched = (path, options) => attempt(async () =>
  read(await fetch(node + path, {credentials, ...options})));
"""

_JSON = "headers: {'Content-Type': 'application/json'}"
#: Of a page of another origin; the browser adds the user's credentials to what it sends.
FOREIGN = {
    "fetch, read": "fetched('/api/v1/topics')",
    "fetch without CORS": "fetched('/api/v1/topics', {mode: 'no-cors'})",
    "script element": """(async () => {
        const made = document.createElement('script');
        made.src = node + '/api/v1/topics';
        return embed(made);
    })()""",
    "image": """(async () => {
        const made = document.createElement('img');
        made.src = node + '/api/v1/topics';
        return await embed(made) + ' ' + made.naturalWidth;
    })()""",
    "frame": "framed((frame) => { frame.src = node + '/api/v1/topics'; })",
    "POST as text": "fetched('/api/v1/topics', {method: 'POST', mode: 'no-cors', body: create})",
    "POST as JSON": f"fetched('/api/v1/topics', {{method: 'POST', body: create, {_JSON}}})",
    "DELETE": "fetched('/api/v1/topics/kept', {method: 'DELETE'})",
    "form, URL-encoded": "form('application/x-www-form-urlencoded', 'name', name)",
    "form, text": 'form(\'text/plain\', \'{"name":"\' + name + \'","config":{"x":"\', \'"}}\')',
    "form, multipart": "form('multipart/form-data', 'name', name)",
    "beacon": """(async () => {
        const sent = navigator.sendBeacon(node + '/api/v1/topics', create);
        await new Promise((done) => setTimeout(done, 500));
        return 'sent: ' + sent;
    })()""",
    "frame without an origin": """(async () => {
        const made = document.createElement('iframe');
        made.sandbox = 'allow-scripts';
        const answer = new Promise((done) => { onmessage = (event) => done(event.data); });
        made.srcdoc = `<script>fetch('${node}/api/v1/topics', {credentials: 'include',
            method: 'POST', mode: 'no-cors', body: '${create}'}).then(
            (found) => parent.postMessage('opaque: ' + found.type, '*'),
            (error) => parent.postMessage(error.name, '*'))</scr` + `ipt>`;
        document.body.append(made);
        return answer;
    })()""",
    "EventSource": """(async () => new Promise((done) => {
        const asked = encodeURIComponent(JSON.stringify({topic: 'kept'}));
        const made = new EventSource(node + '/records/tail?request=' + asked,
            {withCredentials: true});
        made.onopen = () => done('LEAKED: opened');
        made.onerror = () => { made.close(); done('error'); };
    }))()""",
    "WebSocket": """(async () => new Promise((done) => {
        const made = new WebSocket(node.replace('http', 'ws') + '/api/v1/topics');
        made.onopen = () => done('LEAKED: opened');
        made.onerror = () => done('error');
    }))()""",
}
#: Of a page whose own name leads to the node by now: to the browser, it is one site.
REBOUND = {
    "rebound: read": "fetched('/api/v1/topics')",
    "rebound: read with XMLHttpRequest": """(async () => new Promise((done) => {
        const made = new XMLHttpRequest();
        made.open('GET', '/api/v1/topics');
        made.onload = () => done(made.responseText.includes('"kept"') ? 'LEAKED'
            : made.status + ' ' + made.responseText.slice(0, 300));
        made.onerror = () => done('error');
        made.send();
    }))()""",
    "rebound: frame": "framed((frame) => { frame.src = '/api/v1/topics'; })",
    "rebound: POST as JSON": (
        f"fetched('/api/v1/topics', {{method: 'POST', body: create, {_JSON}}})"
    ),
    "rebound: DELETE": "fetched('/api/v1/topics/kept', {method: 'DELETE'})",
}


def script(expression: str, node: str, name: str) -> str:
    """An expression with what it needs, for `Chromium.evaluate`."""
    helpers = _HELPERS.replace("NODE", node).replace("NAME", name)
    return f"(async () => {{ {helpers} return await {expression}; }})()"
