/**
 * A balancer in front of two control planes. `in turn`: each request goes to the next one; `first`:
 * all go to the first one that answers. WebSockets pass too.
 */
import { createServer, type IncomingMessage, request } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';

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
    const forward = ([port, ...others]: readonly number[]): void => {
      if (port === undefined) return void from.destroy();
      const to = connect(port, '127.0.0.1');
      const refused = (): void => forward(others);
      to.once('error', refused);
      to.once('connect', () => {
        to.off('error', refused);
        to.on('error', () => from.destroy()).on('close', () => from.destroy());
        from.on('close', () => to.destroy());
        const { method, url: path, rawHeaders } = incoming;
        const lines = rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
        to.write(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
        from.pipe(to).pipe(from);
      });
    };
    from.on('error', () => undefined);
    forward(targets());
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
