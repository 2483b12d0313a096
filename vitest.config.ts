/**
 * `unit` has no process and no engine of its own, so its files share threads; `real` drives real parts (docker, git, Traefik, our
 * own programs), each file in a process of its own; `browser` is alone with its own; `faults` breaks them.
 */
import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

/** Chromium ends all that it has under way when the machine's addresses change, which engines beside it do (net::ERR_NETWORK_CHANGED). */
const BROWSER = ['test/e2e/sign-in.test.ts'];
const REAL = ['packages/*/test/**/*.real.test.ts', 'test/e2e/**/*.test.ts'];

export default defineConfig({
  test: {
    teardownTimeout: 60_000,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/test/**/*.test.ts', 'test/*.test.ts'],
          exclude: [...REAL, '**/node_modules/**'],
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
          name: 'real',
          include: REAL,
          exclude: [...BROWSER, '**/node_modules/**'],
          sequence: { groupOrder: 1 },
          pool: 'forks',
          isolate: true,
          // Each file starts engines, registries and proxies, and waits for them half of its time: three at once fill two cores.
          maxWorkers: 3,
          testTimeout: 120_000,
          hookTimeout: 180_000,
        },
      },
      {
        test: {
          name: 'browser',
          include: BROWSER,
          exclude: ['**/node_modules/**'],
          sequence: { groupOrder: 2 },
          pool: 'forks',
          isolate: true,
          maxWorkers: 1,
          testTimeout: 120_000,
          hookTimeout: 180_000,
        },
      },
      {
        // `npm run test:faults`: each file has the machine to itself.
        test: {
          name: 'faults',
          include: ['test/faults/**/*.test.ts'],
          exclude: ['**/node_modules/**'],
          sequence: { groupOrder: 3 },
          pool: 'forks',
          isolate: true,
          maxWorkers: 1,
          testTimeout: 180_000,
          hookTimeout: 180_000,
        },
      },
    ],
  },
});
