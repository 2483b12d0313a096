/**
 * The page of a stopped project. The reverse proxy fetches it for any project, so it loads no files
 * and does not name the project.
 */
import { html } from './html.ts';
import { renderPage } from './layout.ts';

export const stoppedPage = (): string =>
  renderPage({
    title: 'Stopped',
    body: html`<h1>This application is stopped</h1>
<p>Somebody stopped it on purpose. It answers again when its team starts it.</p>`,
  });
