/**
 * `unit` has no process and no engine of its own, so its files share threads; `real` drives real parts (docker, git, Traefik, our
 * own programs), each file in a process of its own; `browser` is alone with its own; `faults` breaks them.
 */
import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

/** Chromium ends all that it has under way when the machine's addresses change, which engines beside it do (net::ERR_NETWORK_CHANGED). */
const BROWSER = ['test/e2e/sign-in.test.ts'];
const REAL = ['packages/*/test/**/*.real.test.ts', 'test/e2e/**/*.test.ts'];

const INSTALLED = ['**/node_modules/**'];
/** Each file in a process of its own. */
const PROCESSES = { exclude: INSTALLED, pool: 'forks', isolate: true, hookTimeout: 180_000 } as const;

export default defineConfig({
  test: {
    teardownTimeout: 60_000,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/test/**/*.test.ts', 'test/*.test.ts'],
          exclude: [...REAL, ...INSTALLED],
          // First all of these, then the slow ones.
          sequence: { groupOrder: 0 },
          pool: 'threads',
          isolate: false,
          // Left to itself vitest takes one thread of two cores.
          maxWorkers: Math.max(2, availableParallelism() - 1),
          testTimeout: 10_000,
        },
      },
      {
        test: {
          ...PROCESSES,
          name: 'real',
          include: REAL,
          exclude: [...BROWSER, ...INSTALLED],
          sequence: { groupOrder: 1 },
          // Each file starts engines, registries and proxies, and waits for them half of its time: three at once fill two cores.
          maxWorkers: 3,
          testTimeout: 120_000,
        },
      },
      {
        test: {
          ...PROCESSES,
          name: 'browser',
          include: BROWSER,
          sequence: { groupOrder: 2 },
          maxWorkers: 1,
          testTimeout: 120_000,
        },
      },
      {
        // `npm run test:faults`: each file has the machine to itself.
        test: {
          ...PROCESSES,
          name: 'faults',
          include: ['test/faults/**/*.test.ts'],
          sequence: { groupOrder: 3 },
          maxWorkers: 1,
          testTimeout: 180_000,
        },
      },
    ],
  },
});
