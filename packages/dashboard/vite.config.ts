/** Builds the dashboard to dist/: index.html and assets/ with hashed names. `npm run dashboard` adds the mock of the API (mock/vite.ts). */
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';
import { ROUTES } from '../wire/src/routes.ts';

/**
 * The client of wire/ needs the method and the path of each route, and no schema. The schemas of all routes would be a third of the
 * first page, so the page gets this table instead. Forms import the schemas that they use.
 */
function shortRouteTable(): Plugin {
  const short = Object.fromEntries(Object.entries(ROUTES).map(([name, { method, path }]) => [name, { method, path }]));
  return {
    name: 'berth-routes',
    enforce: 'pre',
    transform: (_code, id) =>
      /[/\\]wire[/\\]src[/\\]routes\.ts$/.test(id) ? { code: `export const ROUTES = ${JSON.stringify(short)};`, map: null } : null,
  };
}

export default defineConfig({
  plugins: [shortRouteTable(), react()],
  build: { outDir: 'dist', emptyOutDir: true, target: 'es2023', assetsInlineLimit: 0, reportCompressedSize: false },
  worker: { format: 'es' },
});
