/** Runs rows on their stage: injects the fault, checks the outcome, and checks what must hold after any fault. */
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
  describe.skipIf(reason !== undefined)(`faults, stage ${name}${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
    let stage: Stage;
    let failed = false;
    beforeAll(async () => {
      stage = await startStage(name);
      // Waits until the container has its final name, so that the first row starts like every other.
      await expectRecovered(stage);
    });
    afterAll(async () => {
      // Keeps the processes' logs for the analysis of a failure.
      if (failed) await cp(join(stage.dir, 'logs'), join(toolsDir, 'results', `faults-${name}`), { recursive: true });
      await stage?.stop();
    });

    // The checker judges only what was recorded, so the last test checks the kinds of events.
    const kinds = new Set<string>();
    for (const row of rows) {
      const why = row.skip?.();
      it.skipIf(why !== undefined)(
        why === undefined ? row.fault : `${row.fault} (skipped: ${why})`,
        async () => {
          await stage.begin();
          stage.recorder.watch();
          let judged = false;
          const client = startProber({ entry: stage.entry, host: `app.${stage.berth.baseDomain}`, perSecond: 10, versionOf });
          try {
            await row.run(stage);
            await expectRecovered(stage);
            judged = true;
            expect(await stage.recorder.judge()).toEqual([]);
            for (const kind of stage.recorder.kinds()) kinds.add(kind);
          } catch (error) {
            failed = true;
            // Events of this row must not fail later rows.
            if (!judged) await stage.recorder.judge().catch(() => []);
            throw error;
          } finally {
            await stage.shims.builder.clear();
            await stage.shims.node.clear();
            const seen = await client.stop();
            if (row.outage !== true)
              expect({ failures: seen.failures, stale: seen.stale }, `of ${seen.sent} requests`).toEqual({ failures: [], stale: 0 });
          }
        },
        ROW_MS + (row.lastsMs ?? 0),
      );
    }

    it('the history has events of agents, clients, engines and proxies', () => {
      expect([...kinds]).toEqual(
        expect.arrayContaining(['accepted', 'read', 'claimed', 'reporting', 'reported', 'container', 'routed', 'story']),
      );
    });
  });
}
