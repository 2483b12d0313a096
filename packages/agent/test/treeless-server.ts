/** A git server that leaves out trees that a client asks for. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export type TreelessServer = { url: string; requests(): number; stop(): Promise<void> };

/**
 * Passes requests to the server at `target`. It changes a request without files into a request
 * without files and trees.
 */
export async function startTreelessServer(target: string): Promise<TreelessServer> {
  let requests = 0;
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    requests += 1;
    const given = (await buffer(request)).toString('latin1');
    // The four digits are the length of the line.
    const body = given
      .replace('0014filter blob:none', '0011filter tree:0')
      .replace('0015filter blob:none\n', '0012filter tree:0\n');
    const names = ['content-type', 'content-encoding', 'git-protocol', 'accept'];
    const headers = names.flatMap((name): [string, string][] => {
      const value = request.headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    });
    const init = request.method === 'POST' ? { body: Buffer.from(body, 'latin1') } : {};
    const answer = await fetch(`${target}${request.url}`, {
      method: request.method ?? 'GET',
      headers,
      ...init,
    });
    const type = answer.headers.get('content-type') ?? 'text/plain';
    response
      .writeHead(answer.status, { 'content-type': type })
      .end(Buffer.from(await answer.arrayBuffer()));
  };
  const server = createServer((request, response) => {
    pass(request, response).catch((error: unknown) => response.writeHead(502).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: () => requests,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
