import { readFileSync } from 'node:fs';
import express from 'express';

const { version } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));
const app = express();
app.get('/', (request, response) =>
  response.json({
    greeting: 'Hello from Express on Berth',
    version,
    user: request.get('x-forwarded-user') ?? null,
  }),
);
app.get('/healthz', (_request, response) => response.json({ status: 'ok' }));
app.get('/version', (_request, response) => response.json({ version }));

const port = Number(process.env.PORT ?? 8080);
const server = app.listen(port, () => console.log(`express-api ${version} listens on ${port}`));
process.once('SIGTERM', () => {
  server.close(() => process.exit(0));
  server.closeIdleConnections();
});
