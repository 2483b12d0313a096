/**
 * A balancer in front of two control planes. `in turn`: each request goes to the next one; `first`:
 * all go to the first one that answers. WebSockets pass too.
 */
import { createServer, type IncomingMessage, request } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';

/**
 * Connects to the first of `ports` that accepts the connection, calls `onConnect`, and passes on the
 * bytes of both sides. Each side ends with the other one.
 */
export function relayTo(
  [port, ...others]: readonly number[],
  from: Socket,
  onConnect: (to: Socket) => void = () => undefined,
): void {
  if (port === undefined) return void from.destroy();
  const to = connect(port, '127.0.0.1');
  const refused = (): void => relayTo(others, from, onConnect);
  to.once('error', refused);
  to.once('connect', () => {
    to.off('error', refused);
    for (const [a, b] of [
      [from, to],
      [to, from],
    ] as const)
      a.on('error', () => b.destroy()).on('close', () => b.destroy());
    onConnect(to);
    from.pipe(to).pipe(from);
  });
}

export type Balancer = { url: string; stop(): void };

export async function startBalancer(
  ports: readonly number[],
  order: 'in turn' | 'first',
): Promise<Balancer> {
  let turn = 0;
  const targets = (): number[] => {
    const first = order === 'first' ? 0 : turn++ % ports.length;
    return [...ports.slice(first), ...ports.slice(0, first)];
  };
  const open = new Set<Socket>();
  const server = createServer((incoming, answer) => {
    const body: Buffer[] = [];
    incoming.on('data', (bytes: Buffer) => body.push(bytes));
    incoming.on('end', () => {
      const forward = ([port, ...others]: readonly number[]): void => {
        if (port === undefined) return void answer.writeHead(502).end();
        const { method, url: path, headers } = incoming;
        const options = { host: '127.0.0.1', port, method, path, headers, agent: false };
        const asked = request(options, (given) => {
          answer.writeHead(given.statusCode ?? 502, given.headers);
          given.on('error', () => answer.destroy()).pipe(answer);
        });
        asked.on('error', () => {
          if (answer.headersSent) answer.destroy();
          else forward(others);
        });
        answer.on('close', () => asked.destroy());
        asked.end(Buffer.concat(body));
      };
      forward(targets());
    });
  });
  server.on('upgrade', (incoming: IncomingMessage, from: Socket) => {
    from.on('error', () => undefined);
    relayTo(targets(), from, (to) => {
      const { method, url: path, rawHeaders } = incoming;
      const lines = rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
      to.write(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
    });
  });
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}
