/**
 * Serves the dashboard from a prebuilt folder: `index.html`, and files under `assets/` whose names
 * contain a hash of their content. The dashboard has its own addresses (`/projects/shop`), so every
 * browser navigation outside the API gets the page.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fastifyStatic from '@fastify/static';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Server } from '../define.ts';

/**
 * Forbids inline scripts. Inline styles are allowed, because the component library sets its CSS
 * variables in a <style> element.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * Paths of other parts. A missing file under `assets` must not get the page as answer: an old tab
 * would run it as a script.
 */
const NOT_PAGES = /^\/(?:api|docs|_oauth|\.well-known|assets)(?:[/?]|$)/;

export type Dashboard = {
  /**
   * Sends the page if a browser navigates to an address of the dashboard. Returns null for every
   * other request.
   */
  page(request: FastifyRequest, reply: FastifyReply): FastifyReply | null;
};

/**
 * Reads the dashboard; throws if the folder contains none. `folder` null: no dashboard is served.
 */
export function readDashboard(folder: string | null): Dashboard {
  if (folder === null) return { page: () => null };
  const file = join(folder, 'index.html');
  if (!existsSync(file))
    throw new Error(
      `DASHBOARD_DIR: ${file} does not exist; build the dashboard, or remove the setting`,
    );
  const html = readFileSync(file);
  return {
    page(request, reply) {
      if (!isNavigation(request)) return null;
      return reply
        .code(200)
        .header('content-security-policy', POLICY)
        .type('text/html; charset=utf-8')
        .send(html);
    },
  };
}

/** Serves the files. Their names change with the content, so a browser can cache them forever. */
export async function installDashboardFiles(server: Server, folder: string | null): Promise<void> {
  if (folder === null) return;
  await server.register(fastifyStatic, {
    root: join(folder, 'assets'),
    prefix: '/assets/',
    // Add one route for each file that exists at the start: no path of a request reaches the file
    // system.
    wildcard: false,
    decorateReply: false,
    immutable: true,
    maxAge: '365d',
    preCompressed: true,
  });
}

/**
 * Returns whether a browser navigates (Fetch Metadata, section 2.2). Without Sec-Fetch headers,
 * Accept tells whether the client wants a page; programs get a problem document.
 */
function isNavigation({ method, url, headers }: FastifyRequest): boolean {
  if ((method !== 'GET' && method !== 'HEAD') || NOT_PAGES.test(url)) return false;
  const mode = headers['sec-fetch-mode'];
  return mode === undefined
    ? /(?:^|[,\s])text\/html(?:[;,\s]|$)/i.test(headers.accept ?? '')
    : mode === 'navigate';
}
