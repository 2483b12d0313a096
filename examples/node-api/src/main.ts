import { readFileSync } from 'node:fs';
import { createApp } from './app.ts';
import { createNotes } from './notes.ts';

const { version } = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
) as { version: string };
const port = Number(process.env.PORT ?? 8080);
const app = createApp({
  version,
  greeting: process.env.GREETING ?? 'Hello from Berth',
  notes: createNotes(),
});

app.listen(port, () => console.log(`node-api ${version} listens on ${port}`));

// Finish the requests in progress, then exit: a redeployment loses none.
process.once('SIGTERM', () => {
  app.close(() => process.exit(0));
  app.closeIdleConnections();
});
