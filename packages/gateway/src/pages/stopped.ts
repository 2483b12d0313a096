/**
 * The pages of a stopped project, and of one that is scaled to 0. The reverse proxy fetches the
 * page of any project, so the page loads no files and does not name the project.
 */
import { html } from './html.ts';
import { renderPage } from './layout.ts';

export const stoppedPage = (): string =>
  renderPage({
    title: 'Stopped',
    body: html`<h1>This application is stopped</h1>
<p>Somebody stopped it on purpose. It answers again when its team starts it.</p>`,
  });

export const scaledToZeroPage = (): string =>
  renderPage({
    title: 'No web server',
    body: html`<h1>This application has no web server now</h1>
<p>No web server of it runs, on purpose. It answers again when its team starts one.</p>`,
  });
