/** Checks the free space and inodes of each folder that Berth writes to. */
import { dirname, resolve } from 'node:path';
import type { Check, Context } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import { type InstalledRole, pathHere } from '../roles.ts';

const LEAST_PERCENT = 5;
const FOLDER_MS = 5_000;

type Named = { what: string; path: string };

export const SPACE: Check = {
  name: 'disk',
  roles: ['control-plane', 'gateway', 'registry', 'proxy', 'relay', 'agent'],
  async run(context) {
    const named = (
      await Promise.all(context.instances.map((one) => foldersOf(context, one)))
    ).flat();
    const paths = [...new Set(named.map(({ path }) => path))];
    const looks = await Promise.all(
      paths.map(async (path) => ({ path, seen: await context.system.folder(path, FOLDER_MS) })),
    );
    const names = (path: string): string =>
      [...new Set(named.filter((one) => one.path === path).map((one) => one.what))].join(', ') +
      ` (${path})`;
    const devices = new Set<number>();
    const results: Result[] = [];
    for (const { path, seen } of looks) {
      if (seen === 'hangs')
        results.push(
          finding(
            `${names(path)} does not answer: reading the folder took more than ` +
              `${FOLDER_MS / 1000} s`,
            'each process that uses it hangs',
            `look at its disk or mount: findmnt -T ${path}; dmesg | tail`,
          ),
        );
      else if (seen.error !== null)
        results.push(
          notChecked(
            `${names(path)}: ` +
              (seen.error === 'ENOENT' ? 'the folder does not exist yet' : seen.error),
          ),
        );
      else if (!devices.has(seen.device)) {
        devices.add(seen.device);
        const onIt = looks.filter(
          (one) =>
            one.seen !== 'hangs' && one.seen.error === null && one.seen.device === seen.device,
        );
        results.push(...spaceOf(onIt.map((one) => names(one.path)).join(', '), path, seen));
      }
    }
    return results;
  },
};

function spaceOf(
  names: string,
  path: string,
  {
    total,
    free,
    inodes,
    freeInodes,
  }: { total: number; free: number; inodes: number; freeInodes: number },
): Result[] {
  const percent = total === 0 ? 100 : (free / total) * 100;
  const inodePercent = inodes === 0 ? 100 : (freeInodes / inodes) * 100;
  const results: Result[] = [];
  const consequence =
    'builds, copies and backups fail soon; a full disk under the database stops every change';
  if (percent < LEAST_PERCENT)
    results.push(
      finding(
        `${percent.toFixed(1)} % of the disk is free (${sizeOf(free)} of ${sizeOf(total)}): ` +
          names,
        consequence,
        `find what is large: du -xh -d 2 ${path} | sort -h | tail; unused images: docker image ` +
          'prune',
      ),
    );
  if (inodePercent < LEAST_PERCENT)
    results.push(
      finding(
        `${inodePercent.toFixed(1)} % of the inodes are free (${freeInodes} of ${inodes}): ` +
          names,
        `${consequence}, although df shows free space`,
        `find the folders with many files: du -x --inodes -d 2 ${path} | sort -n | tail`,
      ),
    );
  return results.length > 0
    ? results
    : [ok(`${percent.toFixed(0)} % of the disk is free: ${names}`)];
}

const sizeOf = (bytes: number): string =>
  bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${(bytes / 1e6).toFixed(0)} MB`;

async function foldersOf(context: Context, instance: InstalledRole): Promise<Named[]> {
  const { settings, role, how } = instance;
  const folders: Named[] = [];
  const add = (what: string, path: string | undefined): void => {
    const here = path === undefined || !path.startsWith('/') ? null : pathHere(instance, path);
    if (here !== null) folders.push({ what, path: here });
  };
  const at = (setting: string, standard?: string): void =>
    add(setting, settings.get(setting) || standard);
  const isPackage = how === 'package';
  if (role === 'control-plane') {
    const file = /^sqlite:(.+)$/.exec(
      settings.get('DATABASE_URL') ??
        (isPackage ? 'sqlite:/var/lib/berth/berth.db' : 'sqlite:data/berth.db'),
    )?.[1];
    if (file !== undefined)
      add('the database', dirname(resolve(isPackage ? '/var/lib/berth' : '.', file)));
    at('STATE_DIR', isPackage ? '/var/lib/berth' : undefined);
    at('DATASET_STATE_DIR');
    at('BACKUP_TO');
  } else if (role === 'gateway') at('STATE_DIR', '/var/lib/berth-gateway');
  else if (role === 'relay') at('STATE_DIR', '/var/lib/berth-relay');
  else if (role === 'proxy' && isPackage) add('certificates', '/var/lib/berth-proxy');
  else if (role === 'registry') {
    const text = isPackage
      ? await context.system.read('/etc/berth/registry.yml').catch(() => undefined)
      : undefined;
    add(
      'images of the registry',
      settings.get('REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY') ??
        /^\s*rootdirectory:\s*(\S+)\s*$/m.exec(text ?? '')?.[1],
    );
  } else if (role === 'agent') {
    const named = instance.name.startsWith('agent-')
      ? `/var/lib/berth-${instance.name}`
      : '/var/lib/berth-agent';
    at('STATE_DIR', isPackage ? named : '/var/lib/berth-agent');
    if (settings.get('NODE_ROLE') === 'deploy') at('SVC_ROOT', '/svc/data');
    else at('KEYS_DIR', isPackage ? undefined : '/dev/shm');
    const info = await context.facts.docker(instance, ['info', '--format', '{{.DockerRootDir}}']);
    if (info?.code === 0) add('the container engine', info.stdout.trim());
  }
  return folders;
}
