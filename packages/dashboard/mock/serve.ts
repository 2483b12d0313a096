/** Serves a built dashboard with the mock of the API, for tests, pictures and benchmarks. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { createMock, type MockOptions } from './api.ts';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};

/** An answer that the mock gives instead of its own. */
export type Instead = { status: number; contentType: string; body: string };

/** `folder` null: only the API. Sends NAME.gz and lets browsers keep assets, like the control plane. */
export async function serveMock(
  folder: string | null,
  options: MockOptions & { port?: number } = {},
): Promise<{
  url: string;
  /**
   * Answers these requests in another way, until the next call. Requests that a browser's driver
   * answers take half as much time again, because they switch off the cache.
   */
  answerInstead(answer: (method: string, path: string) => Instead | undefined): void;
  stop(): Promise<void>;
}> {
  const mock = createMock(options);
  let instead: (method: string, path: string) => Instead | undefined = () => undefined;
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://mock').pathname;
    const other = instead(request.method ?? 'GET', path);
    if (other !== undefined) {
      response.writeHead(other.status, { 'content-type': other.contentType }).end(other.body);
      return;
    }
    if (mock(request, response)) return;
    const asset = normalize(decodeURIComponent(path));
    void (async () => {
      if (folder === null) throw new Error('no pages');
      const file = join(folder, asset.startsWith('/assets/') ? asset : 'index.html');
      const packed = existsSync(`${file}.gz`);
      const body = await readFile(packed ? `${file}.gz` : file);
      response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
      if (packed) response.setHeader('content-encoding', 'gzip');
      // The name of an asset has its digest.
      if (asset.startsWith('/assets/'))
        response.setHeader('cache-control', 'public, max-age=31536000, immutable');
      response.writeHead(200).end(body);
    })().catch(() => response.writeHead(404).end());
  });
  await new Promise<void>((resolve, reject) =>
    server.once('error', reject).listen(options.port ?? 0, '127.0.0.1', resolve),
  );
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    answerInstead: (answer) => void (instead = answer),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
