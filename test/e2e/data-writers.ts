/** Writers on the share during copies, and a program that must be alone there. */
import { randomBytes } from 'node:crypto';
import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Rewrites files of a folder until it is stopped: one every `everyMs`, or without pauses, also a
 * large one in place. Returns the count.
 */
export function startWriter(folder: string, everyMs?: number): { stop(): Promise<number> } {
  let over = false;
  let count = 0;
  const smallOnes = async (): Promise<void> => {
    for (let i = 0; !over; i = (i + 1) % 30) {
      // Equal sizes, so that the size alone does not show the change.
      await writeFile(join(folder, 'rows', `${i}.csv`), randomBytes(10_000).toString('hex'));
      count++;
      await sleep(everyMs ?? 10);
    }
  };
  const largeOne = async (): Promise<void> => {
    const file = await open(join(folder, 'total.bin'), 'r+');
    for (let at = 0; !over; at = (at + 250_000) % 2_000_000) {
      await file.write(randomBytes(250_000), 0, 250_000, at);
      count++;
      await sleep(20);
    }
    await file.close();
  };
  const writing = Promise.all(everyMs === undefined ? [smallOnes(), largeOne()] : [smallOnes()]);
  return {
    async stop() {
      over = true;
      await writing;
      return count;
    },
  };
}

/**
 * Holds a lock on the share while it runs, records its turns, and reports when it was not alone.
 */
export const writerApp = (version: number): Record<string, string> => ({
  Dockerfile:
    'FROM busybox:stable\nCOPY run.sh /run.sh\nCOPY www /www\nEXPOSE 8080\nCMD ["sh", "/run.sh"]\n',
  'www/index.html': `version ${version}\n`,
  'run.sh': `
say() { echo "${version} $1" >> /data/out/lines; }
end() { kill $server; say ended; rmdir /data/out/lock; exit 0; }
trap end TERM
ln -s /data /www/data
mkdir /data/out/lock || say 'not alone'
say began
httpd -f -p 8080 -h /www &
server=$!
while true; do say writes; sleep 0.2 & wait $!; done
`,
});
