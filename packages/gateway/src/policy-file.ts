/**
 * Stores the last policy on the gateway's disk, and revocations that the control plane might not
 * have received yet.
 */
import { mkdir, readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { removeTemporary, writeFileWhole } from '@berth/kit/write-file';
import { Policy, SessionRevoke } from '@berth/wire/gateway';
import type { Static } from 'typebox';
import { Compile } from 'typebox/compile';

export type Revocation = Static<typeof SessionRevoke>;
export type StoredPolicy = {
  policy: Policy;
  /** Time in ms at which the control plane last confirmed the policy. */
  at: number;
};
export type PolicyFile = {
  read(): Promise<StoredPolicy | null>;
  write(policy: Policy): Promise<void>;
  /**
   * Records that the control plane confirmed the policy at `at`, in the file's modification time.
   */
  confirm(at: number): Promise<void>;
  revocations(): Promise<Revocation[]>;
  /** Resolves when the revocation is on disk. */
  addRevocation(revocation: Revocation): Promise<void>;
  dropRevocation(id: string): Promise<void>;
};

const policySchema = Compile(Policy);
const revocationSchema = Compile(SessionRevoke);
export const isPolicy = (value: unknown): value is Policy => policySchema.Check(value);

export async function openPolicyFile(stateDir: string, log: Logger): Promise<PolicyFile> {
  const path = join(stateDir, 'policy.json');
  const revoked = join(stateDir, 'revocations');
  await mkdir(revoked, { recursive: true, mode: 0o700 });
  // Workers share the folder, so do not remove a file that a worker is writing now.
  for (const folder of [stateDir, revoked]) await removeTemporary(folder, 60_000);

  return {
    async read() {
      try {
        const [text, { mtimeMs }] = await Promise.all([readFile(path, 'utf8'), stat(path)]);
        const policy = parsed(text);
        if (isPolicy(policy)) return { policy, at: mtimeMs };
        log.error({ path }, 'the stored policy is not readable; starting without a policy');
        return null;
      } catch (error) {
        if (isMissing(error)) return null;
        throw error;
      }
    },
    write: (policy) => writeFileWhole(path, JSON.stringify(policy)),
    confirm: (at) => utimes(path, at / 1000, at / 1000),
    async revocations() {
      const list: Revocation[] = [];
      for (const name of await readdir(revoked)) {
        if (!name.endsWith('.json')) continue;
        const value = await readFile(join(revoked, name), 'utf8').then(parsed, (error: unknown) => {
          // Another worker has just sent the revocation and deleted its file.
          if (isMissing(error)) return undefined;
          throw error;
        });
        if (revocationSchema.Check(value)) list.push(value);
        else if (value !== undefined) log.error({ name }, 'a stored revocation is not readable');
      }
      return list;
    },
    addRevocation: (revocation) =>
      writeFileWhole(join(revoked, `${fileName(revocation.id)}.json`), JSON.stringify(revocation)),
    dropRevocation: (id) => rm(join(revoked, `${fileName(id)}.json`), { force: true }),
  };
}

const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT';

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/** Encodes the id as hex, so that ids cannot collide on a file system that ignores case. */
const fileName = (id: string): string => Buffer.from(id).toString('hex');
