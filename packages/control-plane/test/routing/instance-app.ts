/**
 * One instance of an application, for load-balancer.real.test.ts: `node instance-app.ts NAME PORT`.
 * `/set` changes the statuses of `/` and `/healthz`.
 */
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { WebSocketServer } from 'ws';

const [, , name = '', port = '0'] = process.argv;
const statuses = new Map([
  ['/', 200],
  ['/healthz', 200],
]);
const orders: string[] = [];

const server = createServer((request, response) => {
  const url = new URL(request.url ?? '/', 'http://instance');
  const status = statuses.get(url.pathname);
  if (status !== undefined) return void response.writeHead(status).end(name);
  switch (url.pathname) {
    case '/set':
      statuses.set(url.searchParams.get('path') ?? '', Number(url.searchParams.get('status')));
      return void response.end();
    case '/name':
      return void response.end(name);
    case '/user':
      return void response.end(request.headers['x-forwarded-user']?.toString() ?? 'nobody');
    case '/order':
      if (request.method === 'POST') orders.push(url.searchParams.get('id') ?? '');
      return void response.end();
    case '/orders':
      return void response.end(JSON.stringify(orders));
    case '/slow':
      return void pause(4_000).then(() => response.end(name));
    case '/events': {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const timer = setInterval(() => response.write(`data: ${name}\n\n`), 100);
      return void response.on('close', () => clearInterval(timer));
    }
    default:
      return void response.writeHead(404).end();
  }
});
new WebSocketServer({ server }).on('connection', (socket) =>
  socket.on('message', (data: Buffer) => socket.send(`${name} ${data.toString()}`)),
);
server.listen(Number(port));
