/** Error answers of the proxy itself, for people and programs. */
import { STATUS_CODES } from 'node:http';
import type { Reply } from './middlewares.ts';

const escape = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

/** `detail` must not name internal addresses, because anybody can see it. */
export function page(status: number, detail: string, accept: string | undefined): Reply {
  const title = STATUS_CODES[status] ?? 'Error';
  // The control plane recognizes the proxy's own answers by this name.
  const headers = {
    server: 'berth-proxy',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  };
  if (accept?.includes('text/html') !== true)
    return {
      status,
      headers: { ...headers, 'content-type': 'text/plain; charset=utf-8' },
      body: `${status} ${title}: ${detail}\n`,
    };
  const body = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${status} ${escape(title)}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;margin:20vh auto 0;max-width:32em;padding:0 1em}h1{font-size:1.4em}</style>
<h1>${status} ${escape(title)}</h1>
<p>${escape(detail)}</p>
</html>
`;
  return { status, headers: { ...headers, 'content-type': 'text/html; charset=utf-8' }, body };
}

export const json = (status: number, value: unknown): Reply => ({
  status,
  headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  body: JSON.stringify(value),
});
