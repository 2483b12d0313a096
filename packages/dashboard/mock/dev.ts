/**
 * The dashboard with vite's development server, which shows each change of its source at once, and
 * the mock of the API.
 */
import { fileURLToPath } from 'node:url';
import { createServer } from 'vite';
import { createMock, type MockOptions } from './api.ts';

export async function startDevServer({
  port,
  ...options
}: MockOptions & { port: number }): Promise<string> {
  const mock = createMock(options);
  const server = await createServer({
    root: fileURLToPath(new URL('..', import.meta.url)),
    server: { host: '127.0.0.1', port },
    plugins: [
      {
        name: 'berth-mock',
        configureServer: ({ middlewares }) =>
          void middlewares.use((request, response, next) => {
            if (!mock(request, response)) next();
          }),
      },
    ],
  });
  await server.listen();
  return server.resolvedUrls?.local[0] ?? `http://127.0.0.1:${port}/`;
}
