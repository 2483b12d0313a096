/** Plays rows on their stage: inject, what must happen, and what must hold whatever the fault was. */
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toolsDir } from '@berth/testbed/config';
import { whyNoOwnEngine } from '@berth/testbed/engine';
import { startProber } from '@berth/testbed/prober';
import { registryProgram } from '@berth/testbed/registry';
import { versionOf } from '../../e2e/world.ts';
import { holdsAll } from './checks.ts';
import { whyNoTraefik } from './front.ts';
import type { Row } from './row.ts';
import { type Stage, type StageName, startStage } from './stage.ts';

function whyNot(name: StageName): string | undefined {
  if (registryProgram() === undefined) return 'no docker-registry';
  return whyNoOwnEngine() ?? (name === 'relay' ? whyNoTraefik() : undefined);
}

/** For all that a row does beside lasting. */
const ROW_MS = 180_000;

export function playRows(name: StageName, rows: readonly Row[]): void {
  const reason = whyNot(name);
  describe.skipIf(reason !== undefined)(`faults, stage ${name}${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
    let stage: Stage;
    let failed = false;
    beforeAll(async () => {
      stage = await startStage(name);
      // Its name has passed on too: the first row finds what every other one finds.
      await holdsAll(stage);
    });
    afterAll(async () => {
      // What the processes said, for whoever looks for the cause.
      if (failed) await cp(join(stage.dir, 'logs'), join(toolsDir, 'results', `faults-${name}`), { recursive: true });
      await stage?.stop();
    });

    // What was not written down is not judged either.
    const kinds = new Set<string>();
    for (const row of rows) {
      const why = row.skip?.();
      it.skipIf(why !== undefined)(
        why === undefined ? row.fault : `${row.fault} (skipped: ${why})`,
        async () => {
          await stage.begin();
          stage.recorder.watch();
          let judged = false;
          const visitor = startProber({ entry: stage.entry, host: `app.${stage.berth.baseDomain}`, perSecond: 10, versionOf });
          try {
            await row.run(stage);
            await holdsAll(stage);
            judged = true;
            expect(await stage.recorder.judge()).toEqual([]);
            for (const kind of stage.recorder.kinds()) kinds.add(kind);
          } catch (error) {
            failed = true;
            // What broke in this row is this row's alone.
            if (!judged) await stage.recorder.judge().catch(() => []);
            throw error;
          } finally {
            await stage.shims.builder.clear();
            await stage.shims.node.clear();
            const seen = await visitor.stop();
            if (row.outage !== true)
              expect({ failures: seen.failures, stale: seen.stale }, `of ${seen.sent} requests`).toEqual({ failures: [], stale: 0 });
          }
        },
        ROW_MS + (row.lastsMs ?? 0),
      );
    }

    it('the history holds what agents, clients, engines and proxies saw', () => {
      expect([...kinds]).toEqual(
        expect.arrayContaining(['accepted', 'read', 'claimed', 'reporting', 'reported', 'container', 'routed', 'story']),
      );
    });
  });
}
