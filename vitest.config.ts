/**
 * The test projects. `npm run check` runs `unit`; `npm test` runs all but `faults` and `install`.
 * - `unit`: starts no process of Berth and no engine, so the files share threads.
 * - `slow`: like `unit`, for files that take more than about 1.5 seconds: thousands of simulated
 *   deployments, or waits in real time.
 * - `real`: real parts (Docker, git, Traefik, our own programs); each file has its own process.
 * - `alone`: one file after the other, with nothing beside it.
 * - `faults`: real parts that the tests break (`npm run test:faults`).
 * - `install`: fresh machines with a systemd of their own (`npm run test:install`).
 */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * The redeployments count failed requests, which have a time limit: three other platforms on the
 * same two cores made them wait for seconds.
 */
const ALONE = ['test/e2e/redeploys.test.ts'];
const UNIT = ['packages/*/test/**/*.test.ts', 'test/*.test.ts'];
/** Files that take more than about 1.5 seconds: many simulated runs, or waits in real time. */
const SLOW = ['packages/*/test/**/*.slow.test.ts', 'test/*.slow.test.ts'];
const REAL = ['packages/*/test/**/*.real.test.ts', 'test/e2e/**/*.test.ts'];
const FAULTS = ['packages/*/test/**/*.faults.test.ts', 'test/faults/**/*.test.ts'];

/**
 * The longest files of `real` and `slow`. They begin first, so that no core waits for the last one. By itself,
 * a fresh clone begins with the largest files, and some of the longest ones only import other
 * files.
 */
const LONGEST = [
  // Simulations need a core and never wait; at the end nothing would run beside them.
  'control-plane/test/sim/sim-1.slow.test.ts',
  'control-plane/test/sim/sim-2.slow.test.ts',
  'agent/test/data/evict.slow.test.ts',
  'agent/test/data/faults.slow.test.ts',
  'control-plane/test/sim/scale-to-zero.slow.test.ts',
  'cli/test/folders.slow.test.ts',
  'control-plane/test/api/jobs.slow.test.ts',
  'test/e2e/instances.test.ts',
  'test/e2e/dashboard-forms.test.ts',
  'test/e2e/dashboard.test.ts',
  'test/e2e/volumes.test.ts',
  'control-plane/test/routing/load-balancer.real.test.ts',
  'agent/test/engine/image.real.test.ts',
  // The scan processes have a low priority, so beside other files these two take longer than their
  // own work.
  'control-plane/test/monitor/scanner.real.test.ts',
  'control-plane/test/api/datasets.real.test.ts',
  'control-plane/test/api/on-postgres.real.test.ts',
  'control-plane/test/sim/two-control-planes.real.test.ts',
  'control-plane/test/store/on-postgres.real.test.ts',
  'test/e2e/isolation.test.ts',
  'test/e2e/sign-in.test.ts',
  'agent/test/engine/engine.real.test.ts',
  'agent/test/engine/host-ports.real.test.ts',
  'agent/test/registry/clean.real.test.ts',
  'test/e2e/drain.test.ts',
  'test/e2e/rotate.test.ts',
  'test/e2e/fail-points-quick.test.ts',
  'test/e2e/push-to-deploy.test.ts',
  'test/e2e/runs.test.ts',
  'test/e2e/processes.test.ts',
  'agent/test/build/build-failures.real.test.ts',
  'test/e2e/https.test.ts',
  'test/e2e/proxy-reach.test.ts',
  'test/e2e/failures.test.ts',
  'test/e2e/alerts.test.ts',
  'test/e2e/clean-up.test.ts',
  'test/e2e/runtime-logs.test.ts',
  'agent/test/tasks/deploy-failures.real.test.ts',
  'test/e2e/data-cache.test.ts',
  'test/e2e/two-control-planes.test.ts',
  'agent/test/engine/networks.real.test.ts',
  'test/e2e/faults-quick.test.ts',
  'gateway/test/process.real.test.ts',
  'testbed/test/engine.real.test.ts',
  'test/e2e/through-traefik-plain.test.ts',
  'test/e2e/through-traefik.test.ts',
  'test/e2e/through-built-in.test.ts',
  'test/e2e/secrets.test.ts',
  'test/e2e/cli.test.ts',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification): number =>
      LONGEST.findIndex((file) => moduleId.endsWith(file)) + 1 || LONGEST.length + 1;
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

const INSTALLED = ['**/node_modules/**'];
/** The files share threads. Left to itself, vitest uses one thread on two cores. */
const THREADS = {
  pool: 'threads',
  isolate: false,
  // A test that hangs ends; a busy machine is no reason to fail.
  testTimeout: 30_000,
} as const;
/**
 * Each file has its own process. The files start hundreds of our own programs, from a bundle that
 * `globalSetup` makes. A program that finds the compiled code of an earlier start needs about 40 %
 * less CPU time to start. scripts/test.ts removes the folder.
 */
const PROCESSES = {
  globalSetup: join(import.meta.dirname, 'scripts/lib/test-programs.ts'),
  exclude: INSTALLED,
  pool: 'forks',
  isolate: true,
  hookTimeout: 180_000,
  env: { NODE_COMPILE_CACHE: join(import.meta.dirname, '.tools', 'compile-cache') },
} as const;

export default defineConfig({
  test: {
    teardownTimeout: 60_000,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...THREADS,
          name: 'unit',
          include: UNIT,
          exclude: [...SLOW, ...REAL, ...FAULTS, ...INSTALLED],
          sequence: { groupOrder: 0 },
          // Some wait in real time: with two threads on two cores they took 15 % longer.
          maxWorkers: Math.max(3, availableParallelism() - 1),
        },
      },
      {
        test: {
          ...THREADS,
          name: 'slow',
          include: SLOW,
          exclude: [...REAL, ...FAULTS, ...INSTALLED],
          sequence: { groupOrder: 1 },
          // Half of these files wait in real time: with two threads on two cores they took half as
          // long again.
          maxWorkers: Math.max(4, availableParallelism()),
        },
      },
      {
        test: {
          ...PROCESSES,
          name: 'real',
          include: REAL,
          exclude: [...ALONE, ...INSTALLED],
          sequence: { groupOrder: 2 },
          // 91 % of two cores, and no time limit failed. With three it took 15 % longer.
          maxWorkers: 4,
          testTimeout: 120_000,
        },
      },
      {
        test: {
          ...PROCESSES,
          name: 'alone',
          include: ALONE,
          sequence: { groupOrder: 3 },
          maxWorkers: 1,
          testTimeout: 120_000,
        },
      },
      {
        // `npm run test:faults`: the files run one after the other.
        test: {
          ...PROCESSES,
          name: 'faults',
          include: FAULTS,
          sequence: { groupOrder: 4 },
          maxWorkers: 1,
          testTimeout: 180_000,
        },
      },
      {
        test: {
          ...PROCESSES,
          name: 'install',
          include: ['test/install/**/*.test.ts'],
          sequence: { groupOrder: 5 },
          maxWorkers: 1,
          testTimeout: 600_000,
        },
      },
    ],
  },
});
