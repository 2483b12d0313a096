/**
 * Simulates the control plane's endpoints for the gateway over HTTP, for tests that run the gateway
 * as a process.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Policy } from '@berth/wire/gateway';

export type HttpControlPlane = {
  url: string;
  publish(policy: Policy): void;
  /** Cuts and refuses connections, like a killed process. */
  kill(): Promise<void>;
  /** Starts again at the same address. */
  start(): Promise<void>;
  /** Number of held requests for the policy. */
  held(): number;
  /**
   * The next poll of a device code gets `token`, and `policy` then reaches one gateway worker after
   * the other, `gapMs` apart.
   */
  issue(token: string, policy: Policy, gapMs: number): void;
  calls: { path: string; body: unknown; secret: string | undefined }[];
};

export async function httpControlPlane(first: Policy): Promise<HttpControlPlane> {
  let policy = first;
  let number = 1;
  let port = 0;
  const calls: HttpControlPlane['calls'] = [];
  const held = new Set<() => void>();
  const used = new Set<string>();
  let next: { token: string; policy: Policy; gapMs: number } | null = null;

  const sendPolicy = (response: ServerResponse): void =>
    void response
      .writeHead(200, { 'content-type': 'application/json', etag: `"${number}"` })
      .end(JSON.stringify(policy));

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').split('?')[0] ?? '';
    const secret = request.headers['x-gateway-secret'];
    if (path === '/api/internal/policy') {
      if (request.headers['if-none-match'] !== `"${number}"`) return sendPolicy(response);
      const answer = (): void => sendPolicy(response);
      held.add(answer);
      response.once('close', () => held.delete(answer));
      return;
    }
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += String(chunk);
    const body = JSON.parse(text) as { id?: string; expires_at?: string };
    calls.push({ path, body, secret: typeof secret === 'string' ? secret : undefined });
    if (path === '/api/internal/codes/redeem') {
      if (used.has(body.id ?? ''))
        return void response
          .writeHead(409)
          .end(JSON.stringify({ code: 'code_used', status: 409, title: '', detail: '', type: '' }));
      used.add(body.id ?? '');
    }
    if (path === '/api/internal/device-codes/poll' && next !== null) {
      const { token, policy: withToken, gapMs } = next;
      policy = withToken;
      number++;
      for (const [index, answer] of [...held].entries()) setTimeout(answer, index * gapMs);
      return void response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ result: 'issued', access_token: token }));
    }
    // Like the real control plane, answer held requests for the policy.
    if (path === '/api/internal/sessions/revoke')
      publish({
        ...policy,
        revoked_sessions: [
          ...policy.revoked_sessions,
          { id: body.id ?? '', expires_at: body.expires_at ?? '' },
        ],
      });
    response.writeHead(204).end();
  }
  function publish(next: Policy): void {
    policy = next;
    number++;
    for (const answer of [...held]) answer();
  }

  let server = createServer();
  const start = async (): Promise<void> => {
    server = createServer((request, response) => {
      handle(request, response).catch((error: unknown) =>
        response.destroy(error instanceof Error ? error : undefined),
      );
    });
    await new Promise<void>((resolve) => void server.listen(port, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
  };
  await start();
  return {
    url: `http://127.0.0.1:${port}`,
    publish,
    held: () => held.size,
    issue(token, policyWithToken, gapMs) {
      next = { token, policy: policyWithToken, gapMs };
    },
    calls,
    start,
    async kill() {
      const closed = new Promise<void>((resolve) => void server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}
