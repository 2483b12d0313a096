/**
 * An HTTP server on loopback that stands for a service of somebody else, and can be out of order.
 */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Receiver<Behaviour> = {
  readonly port: number;
  /** `mute`: accepts requests and says nothing. Other changes end all connections. */
  behave(behaviour: Behaviour | 'mute'): void;
  requests(): number;
  stop(): Promise<void>;
};

/** Starts it with `behaviour`. `answer` gets every request, except while the receiver is mute. */
export async function startReceiver<Behaviour>(
  behaviour: Behaviour,
  answer: (behaviour: Behaviour, ...exchange: Parameters<RequestListener>) => void,
): Promise<Receiver<Behaviour>> {
  let current: Behaviour | 'mute' = behaviour;
  let requests = 0;
  const server = createServer((request, response) => {
    requests++;
    if (current !== 'mute') answer(current, request, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    behave(next) {
      current = next;
      if (next !== 'mute') server.closeAllConnections();
    },
    requests: () => requests,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
