// Shows the signed-in user, as Berth passes it on. Deployed with `auth_required`: a request without a login never arrives here, and
// Berth removes these headers from a visitor's request. No cookie to parse, no token to check, no identity provider to call.
import { createServer } from 'node:http';

const port = Number(process.env.PORT ?? 8080);
/** Address of Berth itself, for the link that signs out. */
const authUrl = process.env.AUTH_URL ?? '';

/** Decodes name and picture, which are percent-encoded because headers hold only ASCII. The provider may send neither. */
const decoded = (value) => (value === undefined ? null : decodeURIComponent(value));

const userOf = ({ headers }) => ({
  email: headers['x-forwarded-user'] ?? null,
  name: decoded(headers['x-forwarded-user-name']),
  avatar_url: decoded(headers['x-forwarded-user-avatar']),
  provider: headers['x-forwarded-user-provider'] ?? null,
});

const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const page = (user) => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Who is signed in</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 12vh auto; padding: 0 1rem; }
  dt { opacity: .7; }
  dd { margin: 0 0 .8rem; font-weight: 600; overflow-wrap: anywhere; }
</style>
<h1>${user.email === null ? 'Nobody is signed in' : `Hello, ${escape(user.name ?? user.email)}`}</h1>
<dl>
  <dt>E-mail</dt><dd>${escape(user.email ?? '–')}</dd>
  <dt>Name</dt><dd>${escape(user.name ?? '–')}</dd>
  <dt>Signed in with</dt><dd>${escape(user.provider ?? '–')}</dd>
</dl>
${authUrl === '' ? '' : `<p><a href="${escape(authUrl)}/_oauth/logout">Sign out</a></p>`}
</html>
`;

const server = createServer((request, response) => {
  const path = new URL(request.url ?? '/', 'http://localhost').pathname;
  if (path === '/healthz') return response.end('ok\n');
  const user = userOf(request);
  response.setHeader('cache-control', 'no-store');
  if (path === '/me.json')
    return response.setHeader('content-type', 'application/json').end(JSON.stringify(user));
  if (path !== '/') return response.writeHead(404).end('There is nothing here.\n');
  response.setHeader('content-type', 'text/html; charset=utf-8').end(page(user));
});

server.listen(port, () => console.log(`listening on ${port}`));
for (const signal of ['SIGTERM', 'SIGINT'])
  process.on(signal, () => server.close(() => process.exit(0)));
