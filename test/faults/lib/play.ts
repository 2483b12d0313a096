/**
 * Runs rows on their stage: injects the fault, checks the outcome, and checks what must hold after
 * any fault.
 */
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { toolsDir } from '@berth/testbed/config';
import { whyNoOwnEngine } from '@berth/testbed/engine';
import { startProber } from '@berth/testbed/prober';
import { registryProgram } from '@berth/testbed/registry';
import { versionOf } from '../../e2e/world.ts';
import { expectRecovered } from './checks.ts';
import { whyNoTraefik } from './front.ts';
import type { Row } from './row.ts';
import { type Stage, type StageName, startStage } from './stage.ts';

function whyNot(name: StageName): string | undefined {
  if (registryProgram() === undefined) return 'no docker-registry';
  return whyNoOwnEngine() ?? (name === 'relay' ? whyNoTraefik() : undefined);
}

/** Time for a row, without the duration of its fault. */
const ROW_MS = 180_000;

export function playRows(name: StageName, rows: readonly Row[]): void {
  const reason = whyNot(name);
  describe.skipIf(reason !== undefined)(
    `faults, stage ${name}${reason === undefined ? '' : ` (skipped: ${reason})`}`,
    () => {
      let stage: Stage;
      /** The row that plays or has failed; undefined after a row that ended well. */
      let failed: string | undefined;
      const begin = async (): Promise<void> => {
        stage = await startStage(name);
        // Waits until the container has its final name, so that the first row starts like every
        // other.
        await expectRecovered(stage);
      };
      const end = async (): Promise<void> => {
        try {
          // Keeps the processes' logs for the analysis of a failure.
          if (failed !== undefined && stage !== undefined)
            await cp(join(stage.dir, 'logs'), join(toolsDir, 'results', `faults-${name}`, failed), {
              recursive: true,
            });
        } finally {
          failed = undefined;
          await stage?.stop();
        }
      };
      beforeAll(begin);
      // A row that failed may have left the stage broken, or still use it: the next row gets a new
      // one.
      beforeEach(async () => {
        if (failed === undefined) return;
        await end().catch((error: unknown) =>
          console.warn('the stage of the failed row did not stop cleanly:', error),
        );
        failed = 'start-of-stage';
        await begin();
        failed = undefined;
      });
      afterAll(end);

      // The checker judges only what was recorded, so the last test checks the kinds of events.
      const kinds = new Set<string>();
      let hasPlayed = false;
      for (const row of rows) {
        const why = row.skip?.();
        it.skipIf(why !== undefined)(
          why === undefined ? row.fault : `${row.fault} (skipped: ${why})`,
          async () => {
            hasPlayed = true;
            failed = row.fault.replaceAll(/[^A-Za-z0-9]+/g, '-');
            // The stage of this row, also when the row runs out of time and the next one gets
            // another stage.
            const mine = stage;
            await mine.begin();
            mine.recorder.watch();
            let judged = false;
            const client = startProber({
              entry: mine.entry,
              host: `app.${mine.berth.baseDomain}`,
              perSecond: 10,
              versionOf,
            });
            try {
              await row.run(mine);
              await expectRecovered(mine);
              judged = true;
              expect(await mine.recorder.judge()).toEqual([]);
              for (const kind of mine.recorder.kinds()) kinds.add(kind);
            } catch (error) {
              // Events of this row must not fail later rows.
              if (!judged) await mine.recorder.judge().catch(() => []);
              throw error;
            } finally {
              mine.shim.clear();
              const seen = await client.stop();
              if (row.outage !== true)
                expect(
                  { failures: seen.failures, stale: seen.stale },
                  `of ${seen.sent} requests`,
                ).toEqual({ failures: [], stale: 0 });
            }
            if (stage === mine) failed = undefined;
          },
          ROW_MS + (row.lastsMs ?? 0),
        );
      }

      it('the history has events of agents, clients, engines and proxies', ({ skip }) => {
        // The words of the command line may select this test and no row.
        skip(!hasPlayed, 'no row of this stage was selected');
        expect([...kinds]).toEqual(
          expect.arrayContaining([
            'accepted',
            'read',
            'claimed',
            'reporting',
            'reported',
            'container',
            'routed',
            'story',
          ]),
        );
      });
    },
  );
}
