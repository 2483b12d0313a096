/**
 * Page about error codes, to which the dashboard and the `type` of problems refer. Lists the
 * meaning of every code, and what to do about a failed deployment. It has no scripts and loads
 * nothing.
 */
import { ERRORS, type FailureCode, FAILURES, NEXT_STEPS } from '@berth/wire/errors';
import type { Server } from '../define.ts';
import { ERRORS_PAGE } from '../problem.ts';

const STYLE =
  'body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 ' +
  '1rem}td,th{text-align:left;padding:.25rem 1rem .25rem 0}:target{background:#ffd}';

const page = (): string => {
  const rows = Object.entries(ERRORS).map(
    ([code, { status, title }]) =>
      `<tr id="${code}"><td><code>${code}</code><td>${status}<td>${title}`,
  );
  // The prefix `failure-` keeps ids unique: one code is in both tables.
  const failures = (Object.keys(FAILURES) as FailureCode[]).map(
    (code) =>
      `<tr id="failure-${code}"><td><code>${code}</code><td>${FAILURES[code]}<td>` +
      NEXT_STEPS[code],
  );
  return `<!doctype html><html lang="en"><meta charset="utf-8">
<title>Error codes of Berth</title><style>${STYLE}</style>
<h1>Error codes</h1>
<p>Every problem document (RFC 9457) has one of these codes in <code>code</code>;
<code>detail</code> describes the actual problem.</p>
<table><thead><tr><th>code<th>status<th>meaning<tbody>${rows.join('\n')}</table>
<h1>Why a deployment failed</h1>
<p>The error of a failed deployment has one of these codes. Its message adds what happened.</p>
<table><thead><tr><th>code<th>meaning<th>what to do<tbody>${failures.join('\n')}</table>`;
};

export function installErrorsPage(server: Server): void {
  const html = page();
  server.get(ERRORS_PAGE, (_request, reply) =>
    reply
      .header(
        'content-security-policy',
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
      )
      .type('text/html; charset=utf-8')
      .send(html),
  );
}
