/**
 * The yardstick of bench/agents.ts: a bare node:http server that parses and answers the same
 * requests, holds the same ones, and does nothing else. A control plane on Node cannot use less CPU
 * than this server on the same machine.
 */
import { createServer } from 'node:http';

const ids = new Map<string, string>();
const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://x');
  if (pathname === '/api/agent/tasks') {
    const answer = (): void => {
      response.setHeader('etag', '"none"');
      if (request.headers['if-none-match'] === undefined) response.end('[]');
      else response.writeHead(304).end();
    };
    const timer = setTimeout(answer, Number(searchParams.get('wait')) * 1000);
    response.on('close', () => clearTimeout(timer));
    return;
  }
  if (pathname === '/api/agent/beat') return void response.writeHead(204).end();
  let text = '';
  request.setEncoding('utf8');
  request.on('data', (chunk: string) => (text += chunk));
  request.on('end', () => {
    const body = JSON.parse(text) as { hostname: string };
    const id = ids.get(body.hostname) ?? `n${ids.size}`;
    ids.set(body.hostname, id);
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ ...body, id }));
  });
});
server.keepAliveTimeout = 95_000;
server.listen(Number(process.argv[2]), '127.0.0.1');
