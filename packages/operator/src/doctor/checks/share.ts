/**
 * Checks the shared storage of datasets: it must be mounted, answer, have its marker, and be
 * mounted with safe options.
 */
import { join } from 'node:path';
import { type Check, type Context, failedRun } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import { pathHere } from '../roles.ts';

const FOLDER_MS = 8_000;
const MOUNT_MS = 5_000;
const NETWORK = /^(nfs4?|cifs|smb3|ceph|9p|lustre|glusterfs|fuse\..+)$/;

export const SHARE: Check = {
  name: 'share',
  roles: ['control-plane', 'agent'],
  async run(context) {
    const paths = new Set(
      context.instances.flatMap((instance) => {
        const path = instance.settings.get('DATASET_NFS_BASE_PATH');
        const isUsed =
          instance.role === 'control-plane' || instance.settings.get('NODE_ROLE') === 'deploy';
        const here = path === undefined || !isUsed ? null : pathHere(instance, path);
        return here === null ? [] : [here.replace(/\/+$/, '') || '/'];
      }),
    );
    return (await Promise.all([...paths].map((path) => checkShare(context, path)))).flat();
  },
};

const CONSEQUENCE =
  'datasets are unreachable: no new versions, and deployments start only where a node already ' +
  'has the data';

async function checkShare({ system }: Context, path: string): Promise<Result[]> {
  const mounts = (await system.read('/proc/self/mountinfo')) ?? '';
  const mount = mountOf(path, mounts);
  const fstab = mountPoints((await system.read('/etc/fstab').catch(() => undefined)) ?? '');
  const planned = fstab.find((point) => point === path || path.startsWith(`${point}/`));
  if (planned !== undefined && mountOf(planned, mounts)?.point !== planned)
    return [
      finding(
        `the share is not mounted: /etc/fstab has ${planned}, and nothing is mounted there`,
        CONSEQUENCE,
        `mount ${planned}, then read: journalctl -b -u '*.mount' -n 50`,
      ),
    ];
  const seen = await system.folder(path, FOLDER_MS);
  if (seen === 'hangs')
    return [
      finding(
        `the share at ${path} hangs: no answer within ${FOLDER_MS / 1000} s`,
        `${CONSEQUENCE}; programs that read it wait`,
        'look at the file server and the network; if the server does not come back: umount -f -l ' +
          `${mount?.point ?? path}, then mount it again`,
      ),
    ];
  if (seen.error === 'ESTALE')
    return [
      finding(
        `the share at ${path} is gone on the server (stale file handle)`,
        CONSEQUENCE,
        `umount -l ${mount?.point ?? path} && mount ${mount?.point ?? path}`,
      ),
    ];
  if (seen.error === 'EACCES' || seen.error === 'EPERM')
    return system.isRoot
      ? [
          finding(
            `the share at ${path} may not be read (${seen.error})`,
            CONSEQUENCE,
            'let this machine read it: look at the export on the server (root_squash, owner, mode)',
          ),
        ]
      : [notChecked(`the share at ${path}: this user may not read it; run as root`)];
  if (seen.error !== null)
    return [
      finding(
        `the share at ${path} cannot be read (${seen.error})`,
        CONSEQUENCE,
        `mount it: findmnt -T ${path}; systemctl status remote-fs.target`,
      ),
    ];
  const results: Result[] = [];
  const where = mount === null ? 'on the system disk' : `${mount.type} from ${mount.source}`;
  if (mount === null && seen.isEmpty && seen.marker === null)
    results.push(
      finding(
        `the share at ${path} is an empty folder on the system disk, so the share is probably ` +
          'not mounted',
        CONSEQUENCE,
        `mount it; to test: findmnt -T ${path}`,
      ),
    );
  else if (seen.marker === '')
    results.push(
      finding(
        `${join(path, '.berth-share')} does not hold an id of Berth`,
        'the next scans do not recognize the share, and its datasets are unreachable',
        'look at the file; if it is damaged, delete it and run: berth dataset scan NAME ' +
          '--accept-share yes',
      ),
    );
  else if (seen.marker === null)
    results.push(
      notChecked(
        `whether ${path} (${where}) is the right share: it has no .berth-share. The control ` +
          'plane writes it at its first scan, where it may write',
      ),
    );
  else results.push(ok(`the share at ${path} answers and has its marker (${where})`));
  if (
    mount !== null &&
    /^nfs4?$/.test(mount.type) &&
    mount.options.includes('soft') &&
    !mount.options.includes('ro')
  )
    results.push(
      finding(
        `the share at ${path} is mounted soft and writable`,
        'when the server is slow, a write of a program fails and its data is lost',
        'mount it with hard, or with ro (docs/nfs.md)',
      ),
    );
  if (mount !== null && !mount.options.includes('ro') && !mount.options.includes('nosuid'))
    results.push(
      finding(
        `the share at ${path} is mounted writable and without nosuid`,
        'a program that a project marks setuid on the share can run as root for other users of ' +
          'this machine',
        'mount it with nosuid,nodev (docs/nfs.md)',
      ),
    );
  if (mount !== null && NETWORK.test(mount.type))
    results.push(...(await checkOrder({ system }, mount.point)));
  return results;
}

/**
 * Checks that the share is mounted before an agent starts, by _netdev or a mount unit of systemd.
 */
async function checkOrder({ system }: Pick<Context, 'system'>, point: string): Promise<Result[]> {
  const ran = await system.run(
    ['systemctl', 'show', '--property=LoadState', '--value', '--', unitOfMount(point)],
    { timeoutMs: MOUNT_MS },
  );
  if (failedRun('systemctl', ran) !== null) return [];
  // A manual mount is lost at the next boot.
  const fragment = await system.run(
    ['systemctl', 'show', '--property=FragmentPath', '--value', '--', unitOfMount(point)],
    {
      timeoutMs: MOUNT_MS,
    },
  );
  if (fragment?.code !== 0 || fragment.stdout.trim() !== '') return [];
  return [
    finding(
      `the share at ${point} was mounted by hand`,
      'after a restart of this machine it is not mounted',
      `add it to /etc/fstab with the option _netdev, then: systemctl daemon-reload`,
    ),
  ];
}

/** Returns the same name as `systemd-escape --path --suffix=mount`. */
export const unitOfMount = (point: string): string => {
  const escaped = point
    .replace(/^\/+|\/+$/g, '')
    .replaceAll(/[^A-Za-z0-9:_./]/g, (char) => `\\x${Buffer.from(char).toString('hex')}`)
    .replaceAll('/', '-');
  return `${escaped === '' ? '-' : escaped}.mount`;
};

type Mount = { point: string; type: string; source: string; options: string[] };

/**
 * Returns the mount that holds the path, or null for the root file system. If several mounts are
 * stacked, the last one is visible.
 */
export function mountOf(path: string, mountinfo: string): Mount | null {
  let deepestMount: Mount | null = null;
  for (const line of mountinfo.split('\n')) {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , , point = '', options = ''] = left.split(' ').map(decoded);
    const [type = '', source = '', more = ''] = right.split(' ').map(decoded);
    if (point === '' || point === '/' || point.length < (deepestMount?.point.length ?? 0)) continue;
    if (path === point || path.startsWith(`${point}/`))
      deepestMount = { point, type, source, options: [...options.split(','), ...more.split(',')] };
  }
  return deepestMount;
}

const decoded = (field: string): string =>
  field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );

/** Returns the mount points of network file systems in /etc/fstab that are mounted at boot. */
const mountPoints = (fstab: string): string[] =>
  fstab.split('\n').flatMap((line) => {
    const [source = '#', point = '', type = '', options = ''] = line.trim().split(/\s+/);
    const isAutomatic = !options
      .split(',')
      .some((option) => option === 'noauto' || option === 'x-systemd.automount');
    return source.startsWith('#') || !NETWORK.test(type) || !isAutomatic ? [] : [decoded(point)];
  });
