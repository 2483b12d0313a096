/** Faults of a builder, and builds that never end. */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { waitFor } from '@berth/testbed/wait';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

const BUILDS_AGAIN =
  'the restarted builder claims the task again (attempt 2); the deployment ends `running`';

/** Kills the builder, starts it again, and waits until the deployment is live. */
async function killAndRestart(
  stage: Stage,
  asked: { id: string },
  beforeStart: () => void,
): Promise<void> {
  const builder = stage.agent('builder-1');
  await builder.crash();
  beforeStart();
  await builder.start();
  await stage.ends(asked, 'running');
  await stage.says(asked, /builder-1 took the build \(attempt 2\)/);
}

const step = (line: string): Record<string, string> => ({
  Dockerfile:
    `FROM busybox:stable\nCOPY www /www\n${line}\nCMD ["httpd", "-f", "-p", "8080", "-h", ` +
    `"/www"]\n`,
});

export const BUILDER_ROWS: readonly Row[] = [
  {
    fault: 'builder killed in clone',
    answer: BUILDS_AGAIN,
    invariants: ['settles', 'old-serves', 'one-lease'],
    stage: 'main',
    async run(stage) {
      const before = stage.git.requests();
      stage.git.behave('mute');
      const asked = await stage.release();
      await waitFor('the builder contacts the git server', () => stage.git.requests() > before, {
        intervalMs: 10,
        deadlineMs: 30_000,
      });
      await killAndRestart(stage, asked, () => stage.git.behave('serve'));
    },
  },
  {
    fault: 'builder killed in build',
    answer: BUILDS_AGAIN,
    invariants: ['settles', 'old-serves', 'one-lease'],
    stage: 'main',
    async run(stage) {
      const asked = await stage.release(step(`RUN echo slowly && sleep 4 # ${randomUUID()}`));
      await stage.says(asked, /^slowly/);
      await killAndRestart(stage, asked, () => undefined);
    },
  },
  {
    fault: 'builder killed in push',
    answer: BUILDS_AGAIN,
    invariants: ['settles', 'old-serves', 'one-lease'],
    stage: 'main',
    async run(stage) {
      stage.gate.behave('hold uploads');
      const asked = await stage.release();
      await waitFor('an upload is in progress', () => stage.gate.held() > 0, {
        intervalMs: 10,
        deadlineMs: 30_000,
      });
      await killAndRestart(stage, asked, () => stage.gate.behave('serve'));
    },
  },
  {
    fault: 'a build without an end and without output',
    answer: '`failed` (`build_timeout`): the agent stops it after `BUILD_TIMEOUT`',
    invariants: ['settles', 'bounded', 'old-serves'],
    stage: 'main',
    async run(stage) {
      const asked = await stage.releaseBroken(step('RUN sleep 100000'));
      await stage.ends(asked, 'failed', 'build_timeout');
    },
  },
  {
    fault: 'a build without an end and with endless output',
    answer:
      'the same; Berth keeps the beginning and the end of the log, and one line says how many ' +
      'lines are missing',
    invariants: ['settles', 'bounded', 'old-serves'],
    stage: 'main',
    async run(stage) {
      const asked = await stage.releaseBroken(
        step('RUN while true; do echo line after line after line after line after line; done'),
      );
      const done = await stage.ends(asked, 'failed', 'build_timeout');
      let lines = 0;
      let after = 0;
      for (;;) {
        const page = await stage.berth.api.call('deploymentLogs', {
          params: { id: done.id },
          query: { after, limit: 5000 },
        });
        if (page.lines.length === 0) break;
        lines += page.lines.length;
        after = page.next;
      }
      expect(lines).toBeGreaterThan(100);
      expect(lines).toBeLessThan(60_000);
    },
  },
];
