/** What the gateway keeps on its disk: the last policy, and logouts that the control plane may not have heard of yet. */
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { Policy, SessionRevoke } from '@berth/wire/gateway';
import type { Static } from 'typebox';
import { Compile } from 'typebox/compile';

export type Revocation = Static<typeof SessionRevoke>;
export type KeptPolicy = { policy: Policy /** When the control plane last said that it holds; milliseconds. */; at: number };
export type PolicyFile = {
  read(): Promise<KeptPolicy | null>;
  write(policy: Policy): Promise<void>;
  /** The file's time of change says when it was last right. */
  confirm(at: number): Promise<void>;
  revocations(): Promise<Revocation[]>;
  /** On disk when it resolves. */
  addRevocation(revocation: Revocation): Promise<void>;
  dropRevocation(id: string): Promise<void>;
};

const policySchema = Compile(Policy);
const revocationSchema = Compile(SessionRevoke);
export const isPolicy = (value: unknown): value is Policy => policySchema.Check(value);

/** `writer`: workers share the folder, and each needs a name of its own for what it has not finished. */
export async function openPolicyFile(stateDir: string, log: Logger, writer: string = String(process.pid)): Promise<PolicyFile> {
  const path = join(stateDir, 'policy.json');
  const revoked = join(stateDir, 'revocations');
  await mkdir(revoked, { recursive: true, mode: 0o700 });

  return {
    async read() {
      try {
        const [text, { mtimeMs }] = await Promise.all([readFile(path, 'utf8'), stat(path)]);
        const policy = parsed(text);
        if (isPolicy(policy)) return { policy, at: mtimeMs };
        log.error({ path }, 'the kept policy cannot be read; starting without one');
        return null;
      } catch (error) {
        if (isMissing(error)) return null;
        throw error;
      }
    },
    write: (policy) => replace(path, JSON.stringify(policy), writer),
    confirm: (at) => utimes(path, at / 1000, at / 1000),
    async revocations() {
      const list: Revocation[] = [];
      for (const name of await readdir(revoked)) {
        if (!name.endsWith('.json')) continue;
        const value = await readFile(join(revoked, name), 'utf8').then(parsed, (error: unknown) => {
          // Another worker has just told it and put it away.
          if (isMissing(error)) return undefined;
          throw error;
        });
        if (revocationSchema.Check(value)) list.push(value);
        else if (value !== undefined) log.error({ name }, 'a kept revocation cannot be read');
      }
      return list;
    },
    addRevocation: (revocation) => replace(join(revoked, `${fileName(revocation.id)}.json`), JSON.stringify(revocation), writer),
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

/** An id is url-safe by its schema; as hex it cannot collide on a file system that ignores case. */
const fileName = (id: string): string => Buffer.from(id).toString('hex');

/** Temporary file, sync, rename: after a power cut the old one is there or the new one, whole. */
async function replace(path: string, text: string, writer: string): Promise<void> {
  const fresh = `${path}.${writer}.new`;
  const file = await open(fresh, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(fresh, path);
}
