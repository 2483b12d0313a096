// Health check of a container of Berth: asks /readyz at the port of LISTEN. Without LISTEN, a command runs that answers nothing.
import { get } from 'node:http';

const port = /:(\d+)$/.exec(process.env.LISTEN ?? '')?.[1];
if (port !== undefined) {
  get({ host: '127.0.0.1', port, path: '/readyz', timeout: 4_000 }, (response) => {
    let body = '';
    response.setEncoding('utf8').on('data', (text) => (body += text));
    response.on('end', () => {
      if (response.statusCode === 200) return;
      console.error(body.slice(0, 2_000));
      process.exitCode = 1;
    });
  })
    .on('timeout', function late() {
      this.destroy(new Error('no answer within 4 s'));
    })
    .on('error', ({ message }) => {
      console.error(message);
      process.exitCode = 1;
    });
}
