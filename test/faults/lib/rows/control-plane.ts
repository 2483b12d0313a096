/** Faults of the control plane and its database. */
import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import type { Row } from '../row.ts';

/** 10 minutes in the full form; the quick form shows the same. */
const AWAY_MS = Number(process.env['FAULTS_AWAY_SECONDS'] ?? '20') * 1_000;
/** Four leases of the suite. */
const STALLED_MS = 20_000;
const LOCKED_MS = Number(process.env['FAULTS_LOCKED_SECONDS'] ?? '30') * 1_000;

export const CONTROL_PLANE_ROWS: readonly Row[] = [
  {
    fault: 'control plane stopped for `FAULTS_AWAY_SECONDS` during a deployment',
    answer:
      'projects keep serving; the agent continues and repeats its report until it is answered; ' +
      'the deployment ends `running`',
    invariants: ['acknowledged-stays', 'settles', 'nothing-destroyed'],
    stage: 'main',
    lastsMs: AWAY_MS,
    async run(stage) {
      stage.shim.hold('after', 'run');
      const asked = await stage.release();
      await stage.shim.reached('after', 'run');
      await stage.berth.controlPlane.crash();
      stage.shim.clear();
      await sleep(AWAY_MS);
      await stage.berth.controlPlane.start();
      await stage.ends(asked, 'running');
    },
  },
  {
    fault: 'control plane frozen (SIGSTOP) for several leases during a deployment',
    answer:
      'no lease expires: the node continues under its first claim, and the deployment ends ' +
      '`running`; projects keep serving',
    invariants: ['settles', 'one-lease', 'old-serves', 'own-clock'],
    stage: 'main',
    lastsMs: STALLED_MS,
    async run(stage) {
      stage.shim.hold('after', 'run');
      const asked = await stage.release();
      await stage.shim.reached('after', 'run');
      const stalled = stage.berth.controlPlane.process();
      stalled.kill('SIGSTOP');
      await sleep(STALLED_MS);
      stalled.kill('SIGCONT');
      stage.shim.clear();
      const done = await stage.ends(asked, 'running');
      expect(done.events.map((e) => e.message).join('\n')).not.toMatch(
        /stopped reporting|attempt 2/,
      );
    },
  },
  {
    fault: 'control plane stopped for longer than every deadline of a waiting deployment',
    answer:
      'deadlines stand still; the deployment still waits for its builder, gets it and ends ' +
      '`running`',
    invariants: ['settles', 'acknowledged-stays', 'old-serves'],
    stage: 'main',
    lastsMs: AWAY_MS,
    async run(stage) {
      const { controlPlane } = stage.berth;
      // Shorter than the absence, and longer than an agent needs to register again.
      const short = { QUEUE_TIMEOUT: `${AWAY_MS / 2_000}s` };
      await controlPlane.stop();
      await controlPlane.start(short);
      const builder = stage.agent('builder-1');
      await builder.stop();
      const nodes = (await stage.berth.api.call('listNodes', { query: {} })).items;
      const params = { id: nodes.find((n) => n.role === 'builder')?.id ?? '' };
      await stage.berth.api.call('cordonNode', { params });
      const asked = await stage.release();
      await stage.says(asked, /is cordoned/);
      await controlPlane.crash();
      await sleep(AWAY_MS);
      await controlPlane.start(short);
      await stage.berth.api.call('uncordonNode', { params });
      await builder.start();
      await stage.ends(asked, 'running');
      await controlPlane.stop();
      await controlPlane.start();
    },
  },
  {
    fault: 'database locked by another program for 30 s',
    answer:
      'reads succeed; writes wait, then fail with an error to the caller; agents retry; no ' +
      'acknowledged write is lost; deployments end',
    invariants: ['acknowledged-stays', 'settles', 'nothing-destroyed'],
    stage: 'main',
    lastsMs: LOCKED_MS,
    async run(stage) {
      const asked = await stage.release();
      const holder = await startProcess(
        [
          process.execPath,
          join(import.meta.dirname, '..', 'hold-lock.ts'),
          join(stage.dir, 'berth.db'),
        ],
        {
          name: 'hold-lock',
        },
      );
      try {
        await waitFor('the database is locked', () => holder.tail().includes('locked'));
        const from = Date.now();
        const write = stage.berth.api.call('patchProject', {
          params: { id: stage.project.id },
          body: { health_path: '/' },
          timeoutMs: 40_000,
        });
        const written = write.then(
          () => null,
          (error: unknown) => String(error),
        );
        expect((await stage.see(asked)).id).toBe(asked.id);
        await sleep(Math.max(0, LOCKED_MS - (Date.now() - from)));
        expect(await written).not.toBeNull();
      } finally {
        await holder.stop();
      }
      await stage.ends(asked, 'running');
    },
  },
  {
    fault: 'database restored from an older backup',
    answer:
      'unknown containers are quarantined: the log and the node name them, and nothing removes ' +
      'them; a new deployment goes live beside them and takes the name when it is free',
    invariants: ['nothing-destroyed', 'settles'],
    stage: 'main',
    outage: true,
    async run(stage) {
      const { controlPlane } = stage.berth;
      const file = join(stage.dir, 'berth.db');
      await controlPlane.stop();
      await copyFile(file, `${file}.copy`);
      await controlPlane.start();
      const forgotten = await stage.release();
      await stage.ends(forgotten, 'running');
      await waitFor(
        'the container has its final name',
        async () => (await stage.containers(stage.engines.node)).join() === 'svc-app running',
        {
          deadlineMs: 30_000,
        },
      );

      await controlPlane.stop();
      for (const left of ['-wal', '-shm']) await rm(`${file}${left}`, { force: true });
      await copyFile(`${file}.copy`, file);
      await stage.recorder.databaseRestored();
      await controlPlane.start();
      stage.accepted.splice(stage.accepted.indexOf(forgotten.id), 1);
      // The restarted agent registers at once and reports its containers.
      await stage.agent('node-1').stop();
      await stage.agent('node-1').start();
      await stage.logged(controlPlane, /they are quarantined/);
      const nodes = (await stage.berth.api.call('listNodes', { query: {} })).items;
      expect(nodes.flatMap((n) => n.containers.map((c) => c.labels['berth.deployment']))).toContain(
        forgotten.id,
      );
      expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);

      expect(nodes.find((n) => n.hostname === 'node-1')?.quarantined).toEqual(['svc-app']);

      const again = await stage.ends(await stage.release(), 'running');
      await stage.serves(stage.version());
      expect(await stage.containers(stage.engines.node)).toContain('svc-app running');
      const drifted = await waitFor('the health shows which container has the name', async () => {
        const seen = await stage.see(again);
        return seen.health?.status === 'drifted' && seen;
      });
      expect(drifted.health?.detail).toContain(forgotten.id);
      expect(drifted.events.filter((e) => e.kind === 'retire_failed')).toHaveLength(1);
      // The operator removes the container: the serving one gets its name.
      await stage.recorder.fromOutside(() =>
        stage.engines.node.docker(['rm', '--force', 'svc-app']),
      );
    },
  },
];
