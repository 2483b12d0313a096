// Reads a dataset: one CSV file of temperatures for each weather station, under DATA_DIR. Before this program starts, the folder is
// complete and read-only, on the disk of this machine. It changes only with a deployment.
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';

const port = Number(process.env.PORT ?? 8080);
const dir = process.env.DATA_DIR ?? '/data/stations';

/** Lines are `time,degrees`. */
async function summarize(file) {
  const name = basename(file, '.csv');
  let [count, sum, min, max] = [0, 0, Infinity, -Infinity];
  for await (const line of createInterface({
    input: createReadStream(join(dir, file)),
    crlfDelay: Infinity,
  })) {
    const degrees = Number(line.slice(line.indexOf(',') + 1));
    if (line === '' || Number.isNaN(degrees)) continue;
    count += 1;
    sum += degrees;
    min = Math.min(min, degrees);
    max = Math.max(max, degrees);
  }
  return {
    name,
    count,
    mean: count === 0 ? null : Number((sum / count).toFixed(2)),
    min: count === 0 ? null : min,
    max: count === 0 ? null : max,
  };
}

/** Computed once, because the data cannot change while this program runs. */
const stations = (await readdir(dir)).filter((file) => file.endsWith('.csv')).sort();
const summary = await Promise.all(stations.map(summarize));

const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const row = (s) =>
  `<tr><td>${escape(s.name)}<td>${s.count}<td>${s.mean ?? '–'}<td>${s.min ?? '–'}<td>${s.max ?? '–'}`;
const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Weather stations</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 1.05rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 8vh auto; padding: 0 1rem; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
  th:first-child, td:first-child { text-align: left; }
</style>
<h1>Weather stations</h1>
<table><tr><th>Station<th>Readings<th>Mean °C<th>Lowest<th>Highest
${summary.map(row).join('\n')}
</table>
</html>
`;

const server = createServer((request, response) => {
  const path = new URL(request.url ?? '/', 'http://localhost').pathname;
  if (path === '/healthz') return response.end('ok\n');
  if (path === '/stations.json')
    return response.setHeader('content-type', 'application/json').end(JSON.stringify(summary));
  if (path !== '/') return response.writeHead(404).end('There is nothing here.\n');
  response.setHeader('content-type', 'text/html; charset=utf-8').end(page);
});

server.listen(port, () =>
  console.log(`${summary.length} stations from ${dir}; listening on ${port}`),
);
for (const signal of ['SIGTERM', 'SIGINT'])
  process.on(signal, () => server.close(() => process.exit(0)));
