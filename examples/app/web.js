// The process `web`: takes orders, and shows what the worker and the nightly job made of them.
import { createServer } from 'node:http';
import { openDatabase } from './database.js';

const db = openDatabase();
const port = Number(process.env.PORT ?? 8080);
const insert = db.prepare('INSERT INTO orders (item, amount) VALUES (?, ?)');
const newest = db.prepare('SELECT * FROM orders ORDER BY id DESC LIMIT 20');
const report = db.prepare('SELECT * FROM reports ORDER BY id DESC LIMIT 1');

const state = () => ({ orders: newest.all(), report: report.get() ?? null });
const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const row = ({ id, item, amount, status, price }) =>
  `<tr><td>${id}<td>${escape(item)}<td>${amount}<td>${status}<td>${price ?? '–'}`;
const page = ({ orders, report: last }) => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Orders</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 1.05rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 8vh auto; padding: 0 1rem; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: .3rem .6rem; }
</style>
<h1>Orders</h1>
<form method="post" action="/orders">
  <label>Item <input name="item" required maxlength="100"></label>
  <label>Amount <input name="amount" type="number" min="1" max="1000" value="1" required></label>
  <button>Order</button>
</form>
<table><tr><th>Order<th>Item<th>Amount<th>Status<th>Price
${orders.map(row).join('\n')}
</table>
<p>${last === null ? 'No report yet.' : `Report of ${last.at}: ${last.orders} orders, ${last.sum} in all.`}</p>
</html>
`;

async function bodyOf(request) {
  let text = '';
  for await (const chunk of request) {
    text += chunk;
    if (text.length > 10_000) throw new Error('too long');
  }
  return new URLSearchParams(text);
}

async function order(request, response) {
  const fields = await bodyOf(request);
  const item = fields.get('item') ?? '';
  const amount = Number(fields.get('amount') ?? 1);
  const isRight = item !== '' && item.length <= 100 && Number.isInteger(amount) && amount > 0;
  if (!isRight || amount > 1000) return response.writeHead(422).end('item and amount are needed\n');
  insert.run(item, amount);
  response.writeHead(303, { location: '/' }).end();
}

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? '/', 'http://localhost');
  const html = { 'content-type': 'text/html; charset=utf-8' };
  if (pathname === '/healthz') return response.end('ok\n');
  if (pathname === '/orders' && request.method === 'POST')
    return void order(request, response).catch(() => response.writeHead(400).end());
  if (pathname === '/orders.json')
    return response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify(state()));
  if (pathname === '/') return response.writeHead(200, html).end(page(state()));
  return response.writeHead(404).end('There is nothing here.\n');
});

server.listen(port, () => console.log(`listening on ${port}`));
for (const signal of ['SIGTERM', 'SIGINT'])
  process.on(signal, () => server.close(() => process.exit(0)));
