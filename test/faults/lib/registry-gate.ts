/**
 * A proxy in front of the real registry that can be slow, refuse pushes, hold uploads, be down, or
 * lose pushed manifests.
 */
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * `refuse`: refuses only the manifest; `refuse layers`: refuses every upload. `forget`: only the
 * builder still finds what it pushed; `lose`: the builder does not find it either.
 */
export type GateMode =
  | 'serve'
  | 'slow'
  | 'refuse'
  | 'refuse layers'
  | 'down'
  | 'hold uploads'
  | 'forget'
  | 'lose';

export type RegistryGate = {
  address: string;
  behave(mode: GateMode): void;
  /** Number of held uploads. */
  held(): number;
  stop(): Promise<void>;
};

const SLOW_MS = 150;

export async function startRegistryGate(
  listen: string,
  upstream: string,
  builderIp: string,
): Promise<RegistryGate> {
  let mode: GateMode = 'serve';
  let held = 0;
  const [host, port] = upstream.split(':');

  function forward(request: IncomingMessage, response: ServerResponse): void {
    // The Host header stays: the registry writes it into the addresses of its answers.
    const onward = httpRequest(
      {
        host,
        port,
        method: request.method,
        path: request.url,
        headers: request.headers,
        agent: false,
      },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      },
    );
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const upload =
      request.method === 'PUT' || request.method === 'PATCH' || request.method === 'POST';
    if (mode === 'down') return void request.socket.destroy();
    const manifest = /\/manifests\//.test(request.url ?? '');
    if (upload && (mode === 'refuse layers' || (mode === 'refuse' && manifest))) {
      request.resume();
      const denied = {
        errors: [{ code: 'DENIED', message: 'requested access to the resource is denied' }],
      };
      return void response
        .writeHead(403, { 'content-type': 'application/json' })
        .end(JSON.stringify(denied));
    }
    if (mode === 'hold uploads' && upload) {
      held++;
      while (mode === 'hold uploads' && !response.destroyed) await sleep(20);
      held--;
      return void response.destroy();
    }
    const asksFor = manifest && !upload;
    if (
      asksFor &&
      (mode === 'lose' || (mode === 'forget' && request.socket.remoteAddress !== builderIp))
    ) {
      const lost = { errors: [{ code: 'MANIFEST_UNKNOWN', message: 'manifest unknown' }] };
      return void response
        .writeHead(404, { 'content-type': 'application/json' })
        .end(JSON.stringify(lost));
    }
    if (mode === 'slow') await sleep(SLOW_MS);
    forward(request, response);
  }

  const server = createServer(
    (request, response) => void serve(request, response).catch(() => response.destroy()),
  );
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, listen, resolve);
  });
  return {
    address: `${listen}:${(server.address() as AddressInfo).port}`,
    behave(next) {
      mode = next;
      if (next === 'down') server.closeAllConnections();
    },
    held: () => held,
    stop: () =>
      new Promise((resolve) => {
        mode = 'serve';
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
