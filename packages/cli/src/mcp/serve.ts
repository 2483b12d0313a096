/** The transports of `berth mcp`: standard input and output, or streamable HTTP. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { listen as parseListen } from '@berth/kit/config';
import type { Cli } from '../cli.ts';
import { EXIT, failureOf, usage } from '../problem.ts';
import { openSession, type Session } from '../session/session.ts';
import { createMcpServer } from './server.ts';

const MAX_BODY = 1024 * 1024;
const MAX_CONNECTIONS = 64;
const PATH = '/mcp';
/** HTTP status for each exit code of a failure. */
const STATUS_OF_EXIT: Partial<Record<number, number>> = {
  [EXIT.signIn]: 401,
  [EXIT.unreachable]: 502,
};
const LOOPBACK = ['127.0.0.1', '::1', 'localhost'];

/**
 * Serves requests with the rights of the signed-in person, until the client closes standard input.
 */
export async function serveStdio(cli: Cli, allowChanges: boolean): Promise<void> {
  const server = createMcpServer(cli, await mayChange(cli.session(), allowChanges));
  const closed = new Promise<void>((resolve) => {
    process.stdin.once('end', resolve).once('close', resolve);
  });
  await server.connect(new StdioServerTransport());
  await closed;
}

/**
 * Returns whether to offer tools that change something. A viewer gets none, because the server
 * would refuse a viewer's changes.
 */
async function mayChange(session: Session, allowChanges: boolean): Promise<boolean> {
  const { role } = await session.client.call('me', {});
  return allowChanges && role !== 'viewer';
}

export type HttpOptions = { listen: string; allowChanges: boolean };

/**
 * Serves requests over HTTP. Each request carries a Berth token and acts with its rights. Returns
 * the address and a function that stops the server.
 */
export async function serveHttp(
  cli: Cli,
  url: string,
  { listen, allowChanges }: HttpOptions,
): Promise<{ address: string; close(): Promise<void> }> {
  const at = parseListen(listen);
  const server = createServer((request, reply) => {
    answer(request, reply).catch((error: unknown) => {
      if (reply.headersSent) return void reply.destroy();
      const { problem } = failureOf(error);
      send(reply, STATUS_OF_EXIT[problem.exit_code] ?? 500, problem.detail ?? problem.code);
    });
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.requestTimeout = 30_000;
  await new Promise<void>((resolve, reject) =>
    server.once('error', reject).listen(at.port, at.host, resolve),
  );
  const { port } = server.address() as AddressInfo;
  const isLocal = LOOPBACK.includes(at.host);

  async function answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    // Refuse DNS rebinding: a hostile page sends its own name in Host and Origin.
    if (
      isLocal &&
      !(isLoopback(`http://${request.headers.host ?? ''}`) && isLoopback(request.headers.origin))
    )
      return send(reply, 403, 'only requests from this machine are allowed');
    if (URL.parse(request.url ?? '/', 'http://localhost')?.pathname !== PATH)
      return send(reply, 404, `the server answers at ${PATH}`);
    const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
    if (token === undefined) {
      void reply.setHeader('www-authenticate', 'Bearer');
      return send(
        reply,
        401,
        'send a personal API token of Berth as a Bearer token: berth token create NAME',
      );
    }
    // Each request is complete in itself, so there is no session that somebody could steal.
    if (request.method !== 'POST') return send(reply, 405, 'only POST is supported');
    const body = await bodyOf(request);
    if (body === null) return send(reply, 413, 'the request is larger than 1 MiB');
    const session = openSession(cli.io, url, token);
    const changes = await mayChange(session, allowChanges);
    const acting: Cli = { ...cli, session: () => session, client: () => session.client };
    const mcp = createMcpServer(
      { ...acting, project: (named) => cli.projectOf(session, named) },
      changes,
    );
    const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
    reply.once('close', () => void transport.close());
    await mcp.connect(transport);
    await transport.handleRequest(request, reply, parsed(body));
  }

  return {
    address: `http://${at.host.includes(':') ? `[${at.host}]` : at.host}:${port}${PATH}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function isLoopback(origin: string | undefined): boolean {
  if (origin === undefined) return true;
  return (
    URL.canParse(origin) && LOOPBACK.includes(new URL(origin).hostname.replace(/^\[|\]$/g, ''))
  );
}

async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > MAX_BODY) return null;
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw usage('the request is not JSON', undefined, error);
  }
}

function send(reply: ServerResponse, status: number, text: string): void {
  void reply
    .writeHead(status, { 'content-type': 'application/json' })
    .end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32_000, message: text } }));
}
