/**
 * A docker command that a test can stop at a verb (docker-shim.sh), to catch an agent exactly
 * between two steps.
 */
import { chmod, copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { searchPath } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';

export type Shim = {
  /** Environment for the agent. */
  env: { PATH: string };
  /** `before`: does not run the command while held; `after`: runs it and holds back its end. */
  hold(when: 'before' | 'after', verb: string): Promise<void>;
  /** Every call of the verb fails with this message. */
  fail(verb: string, complaint: string): Promise<void>;
  reached(when: 'before' | 'after', verb: string): Promise<void>;
  /** Removes every hold and failure. */
  clear(): Promise<void>;
};

export async function createShim(dir: string): Promise<Shim> {
  await mkdir(dir, { recursive: true });
  const program = join(dir, 'docker');
  await copyFile(join(import.meta.dirname, 'docker-shim.sh'), program);
  await chmod(program, 0o755);
  const placed = new Set<string>();
  const place = async (name: string, text: string): Promise<void> => {
    placed.add(name);
    await rm(join(dir, `reached-${name}`), { force: true });
    await writeFile(join(dir, name), `${text}\n`);
  };
  return {
    env: { PATH: [dir, ...searchPath()].join(delimiter) },
    hold: (when, verb) => place(`${when}-${verb}`, 'hold'),
    fail: (verb, complaint) => place(`before-${verb}`, complaint),
    reached: async (when, verb) => {
      await waitFor(
        `the agent is ${when} docker ${verb}`,
        () => existsSync(join(dir, `reached-${when}-${verb}`)),
        {
          deadlineMs: 45_000,
          intervalMs: 10,
        },
      );
    },
    async clear() {
      for (const name of placed)
        for (const file of [name, `reached-${name}`]) await rm(join(dir, file), { force: true });
      placed.clear();
    },
  };
}
