/** The application that all projects of npm run soak run. */

export const BASE_IMAGE = 'node:24-slim';
export const STREAM_SECONDS = 3;
const END = 'data: end\n\n';

/**
 * Answers at once and as a stream of 3 s, and ends at once on SIGTERM: only the drain protects its
 * requests. Its build prints 200 lines, and adds random bytes to the image, which no compression
 * shrinks.
 */
export const applicationOf = (
  name: string,
  version: number,
  imageBytes: number,
): Record<string, string> => ({
  Dockerfile: `FROM ${BASE_IMAGE}\nCOPY . /\nRUN ["node", "/build.mjs"]\nCMD ["node", "/app.mjs"]\n`,
  'build.mjs': `
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
for (let i = 0; i < 200; i++) console.log('step', i, randomBytes(30).toString('hex'));
writeFileSync('/app.bin', randomBytes(${imageBytes}));
`,
  'app.mjs': `
import { createServer } from 'node:http';
process.on('SIGTERM', () => process.exit(0));
createServer((request, response) => {
  response.write('${name} version ${version}\\n');
  if (request.url !== '/stream') return void response.end();
  let tick = 0;
  const timer = setInterval(() => {
    response.write('data: ' + ++tick + '\\n\\n');
    if (tick === ${STREAM_SECONDS * 5}) { clearInterval(timer); response.end('data: end\\n\\n'); }
  }, 200);
  request.on('close', () => clearInterval(timer));
}).listen(8080);
`,
});

/** Returns the version on a page; undefined when the page is not one of this project. */
export function versionOn(body: string, name: string): number | undefined {
  const [, by, version] = /^(\S+) version (\d+)\n/.exec(body) ?? [];
  return by === name ? Number(version) : undefined;
}
export const isWhole = (stream: string): boolean => stream.endsWith(END);
