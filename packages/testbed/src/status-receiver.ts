/** The API of a Gitea, as far as commit statuses go: keeps what it accepts. */
import { json } from 'node:stream/consumers';
import { type Receiver, startReceiver } from './receiver.ts';

export type ReceivedStatus = { commit: string; state: string; context: string; target_url: string };
/** `down`: answers 503; an address: redirects there. */
type Behaviour = 'serve' | 'down' | { redirect: string };
export type StatusReceiver = Omit<Receiver<Behaviour>, 'port'> & {
  /** Value for `api_url` of a git token. */
  readonly apiUrl: string;
  readonly received: readonly ReceivedStatus[];
};

export async function startStatusReceiver(): Promise<StatusReceiver> {
  const received: ReceivedStatus[] = [];
  const { port, ...receiver } = await startReceiver<Behaviour>(
    'serve',
    (behaviour, request, response) => {
      if (behaviour === 'down') return void response.writeHead(503).end('out of order');
      if (behaviour !== 'serve')
        return void response.writeHead(307, { location: behaviour.redirect }).end();
      json(request).then(
        (body) => {
          const commit = request.url?.split('/').at(-1) ?? '';
          received.push({ ...(body as Omit<ReceivedStatus, 'commit'>), commit });
          response.writeHead(201, { 'content-type': 'application/json' }).end('{}');
        },
        () => response.writeHead(400).end(),
      );
    },
  );
  return { ...receiver, apiUrl: `http://127.0.0.1:${port}/api/v1`, received };
}
