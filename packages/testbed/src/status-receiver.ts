/** The API of a Gitea, as far as commit statuses go: keeps what it accepts. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

export type ReceivedStatus = { commit: string; state: string; context: string; target_url: string };
export type StatusReceiver = {
  /** Value for `api_url` of a git token. */
  readonly apiUrl: string;
  readonly received: readonly ReceivedStatus[];
  /** `down`: answers 503; `mute`: accepts connections and says nothing; an address: redirects there. */
  behave(behaviour: 'serve' | 'down' | 'mute' | { redirect: string }): void;
  requests(): number;
  stop(): Promise<void>;
};

export async function startStatusReceiver(): Promise<StatusReceiver> {
  const received: ReceivedStatus[] = [];
  let behaviour: Parameters<StatusReceiver['behave']>[0] = 'serve';
  let requests = 0;
  const server = createServer((request, response) => {
    requests++;
    if (behaviour === 'mute') return;
    if (behaviour === 'down') return void response.writeHead(503).end('out of order');
    if (behaviour !== 'serve') return void response.writeHead(307, { location: behaviour.redirect }).end();
    json(request).then(
      (body) => {
        const commit = request.url?.split('/').at(-1) ?? '';
        received.push({ ...(body as Omit<ReceivedStatus, 'commit'>), commit });
        response.writeHead(201, { 'content-type': 'application/json' }).end('{}');
      },
      () => response.writeHead(400).end(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    apiUrl: `http://127.0.0.1:${port}/api/v1`,
    received,
    behave(next) {
      behaviour = next;
      if (next !== 'mute') server.closeAllConnections();
    },
    requests: () => requests,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
