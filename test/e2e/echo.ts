/**
 * An application that returns the headers of its request as JSON, over HTTP and over a WebSocket.
 */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

export type Echo = {
  app: string;
  url: string;
  /** Headers as received: `X_Forwarded_User` and `X-Forwarded-User` are different names. */
  headers: [name: string, value: string][];
};
export type EchoApp = { port: number; stop(): Promise<void> };

const echoOf = (app: string, req: IncomingMessage): string => {
  const headers = req.rawHeaders.flatMap((name, i, all): [string, string][] =>
    i % 2 === 0 ? [[name, all[i + 1] ?? '']] : [],
  );
  return JSON.stringify({ app, url: req.url ?? '', headers } satisfies Echo);
};

export async function startEcho(app: string): Promise<EchoApp> {
  const server: Server = createServer((req, res) => {
    const accept = req.headers.accept ?? '';
    if (!accept.includes('text/html')) {
      res.writeHead(200, { 'content-type': 'application/json' }).end(echoOf(app, req));
      return;
    }
    // The browser tests read the JSON from the page and run scripts in it.
    const text = echoOf(app, req).replaceAll('<', '\\u003c');
    res.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    res.end(
      `<!doctype html><title>${app}</title><h1>${app}</h1><script type="application/json" ` +
        `id="echo">${text}</script>`,
    );
  });
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket, req) => socket.send(echoOf(app, req)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    async stop() {
      for (const socket of sockets.clients) socket.terminate();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
