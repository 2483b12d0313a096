import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { acceptSocket, type Socket } from './socket.ts';

const here = (path: string) => new URL(path, import.meta.url);
const { version } = JSON.parse(readFileSync(here('../package.json'), 'utf8')) as {
  version: string;
};
const page = readFileSync(here('../public/index.html'), 'utf8').replaceAll('@VERSION@', version);
const port = Number(process.env.PORT ?? 8080);

/** Everyone in the room, with the name that others see. */
const room = new Map<Socket, string>();
let guests = 0;

function tellAll(message: object): void {
  const text = JSON.stringify(message);
  for (const socket of room.keys()) socket.send(text);
}

const answers: Record<string, { status: number; type: string; body: string }> = {
  '/': { status: 200, type: 'text/html', body: page },
  '/healthz': { status: 200, type: 'text/plain', body: 'ok\n' },
  '/version': { status: 200, type: 'text/plain', body: `${version}\n` },
};

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? '/', 'http://app.invalid');
  const answer = answers[pathname] ?? { status: 404, type: 'text/plain', body: 'not found\n' };
  response
    .writeHead(answer.status, { 'content-type': `${answer.type}; charset=utf-8` })
    .end(answer.body);
});

server.on('upgrade', (request, stream, head) => {
  const user = request.headers['x-forwarded-user'];
  const name = typeof user === 'string' && user !== '' ? user : `guest ${++guests}`;
  const socket = acceptSocket(request, stream, head, {
    onText: (text) => tellAll({ kind: 'said', from: name, text }),
    onClose(closed) {
      if (room.delete(closed)) tellAll({ kind: 'left', from: name, present: room.size });
    },
  });
  if (socket === undefined) return;
  socket.send(JSON.stringify({ kind: 'hello', you: name, version }));
  room.set(socket, name);
  tellAll({ kind: 'came', from: name, present: room.size });
});

server.listen(port, () => console.log(`chat ${version} listens on ${port}`));

// 1001 makes the pages connect again. By then the new version answers.
process.once('SIGTERM', () => {
  for (const socket of room.keys()) socket.close(1001);
  server.close(() => process.exit(0));
  server.closeIdleConnections();
});
