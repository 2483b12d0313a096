/** Builds the command with which the next machine joins. Pure. */
import type { PackageFile } from './packages.ts';

export type Joining = {
  role: string;
  name: string | null;
  /** Internal address of the control plane. */
  controlPlaneUrl: string;
  registryAddr: string;
  version: string;
  /** Packages of this version that the control plane serves. */
  packages: readonly PackageFile[];
};
export type JoinCommand = {
  command: string;
  /** Steps that the admin must do first. */
  notes: string[];
};

/** Matches text that needs no quotes in a shell. */
const PLAIN = /^[\w.:/[\]+~-]+$/;
const quoted = (text: string): string =>
  PLAIN.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
const LOOPBACK = /^(https?:\/\/)?(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:|\/|$)/;
const FIRST = 'run on its machine first: berth install all --internal-address ADDRESS --start';

/**
 * Builds the command without a token: other users can read arguments, and the shell keeps a
 * history. `berth` reads the token from standard input, or asks for it.
 */
export function joinCommand(joining: Joining): JoinCommand {
  const { role, name, controlPlaneUrl, registryAddr, packages, version } = joining;
  const notes = [
    ...(LOOPBACK.test(controlPlaneUrl)
      ? [
          `CONTROL_PLANE_URL is ${controlPlaneUrl}, which only the machine of the control ` +
            `plane reaches: ${FIRST}`,
        ]
      : []),
    ...(LOOPBACK.test(registryAddr)
      ? [`REGISTRY_ADDR is ${registryAddr}, which is another registry on each machine: ${FIRST}`]
      : []),
  ];
  const named = name === null ? '' : ` --name ${name}`;
  const install = (url: string): string =>
    `berth install agent --role ${role}${named} --control-plane ${url} --join-token-file - --start`;
  if (packages.length === 0 || !PLAIN.test(controlPlaneUrl)) {
    const file = `berth_${version}_ARCH.deb`;
    return {
      command: install(quoted(controlPlaneUrl)),
      notes: [
        (packages.length === 0 ? `PACKAGE_DIR has no package of version ${version}: ` : '') +
          `copy ${file} to the machine and install it first: apt-get install ./${file}` +
          (packages.length === 0
            ? ' (without compose, berth install control-plane offers it from here)'
            : ''),
        ...notes,
      ],
    };
  }
  const cases = packages
    .map(({ arch, name: file, sha256 }) => `${arch}) f=${file} s=${sha256};;`)
    .join(' ');
  const steps = [
    `case $(dpkg --print-architecture) in ${cases} *) echo "there is no package of Berth for ` +
      'this machine" >&2; exit 1;; esac',
    'cd "$(mktemp -d)"',
    'chmod 755 .',
    'command -v curl >/dev/null || apt-get install -y curl </dev/null',
    `curl -fsSO ${controlPlaneUrl}/api/packages/$f`,
    'echo "$s  $f" | sha256sum -c --quiet',
    // Without </dev/null, apt-get would read the join token from stdin.
    'apt-get install -y ./$f </dev/null',
    install(controlPlaneUrl),
  ];
  return { command: `(set -e; ${steps.join('; ')})`, notes };
}
