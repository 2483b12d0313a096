/** The networks of the container engine. */
import { LABELS } from '@berth/wire/vocabulary';
import type { DockerCli } from './docker-cli.ts';
import { classify, outputTail, PULL_FAILURES, TaskFailure } from '../failures.ts';

export type Network = {
  id: string;
  name: string;
  labels: Record<string, string>;
  /** IPv4 networks as CIDR. */
  subnets: readonly string[];
};

export type DockerNetworks = {
  /** All networks, including those that Berth did not create. */
  list(signal?: AbortSignal): Promise<Network[]>;
  /** Returns the new network’s id; null if its addresses overlap with another network. */
  create(
    network: { name: string; subnet: string; labels: Record<string, string> },
    signal?: AbortSignal,
  ): Promise<string | null>;
  /**
   * Whether any container uses the network. Stopped containers count: without the network they
   * could not start again.
   */
  isUsed(id: string): Promise<boolean>;
  /**
   * The network of containers without another one, and of build steps. `isShared`: containers that
   * are not Berth's use it, running or not. Null: the engine has none.
   */
  defaultNetwork(signal?: AbortSignal): Promise<{ bridge: string; isShared: boolean } | null>;
  /** Returns false if the engine refuses because the network is in use. */
  remove(id: string): Promise<boolean>;
};

type RawNetwork = {
  Id: string;
  Name: string;
  Labels: Record<string, string> | null;
  IPAM?: { Config?: { Subnet?: string }[] | null } | null;
};
const GONE = /no such network|network \S+ not found/i;

export function createDockerNetworks(cli: DockerCli): DockerNetworks {
  const failure = (stderr: string): TaskFailure =>
    new TaskFailure(
      classify(PULL_FAILURES, stderr.replaceAll(/not found/g, 'gone'), 'task_failed'),
      outputTail(stderr),
    );
  return {
    async list(signal) {
      const options = signal === undefined ? {} : { signal };
      const ids = (await cli.runOrThrow(['network', 'ls', '--quiet', '--no-trunc'], options)).stdout
        .split('\n')
        .filter((id) => id !== '');
      const result = await cli.run(['network', 'inspect', ...ids], {
        ...options,
        maxOutput: 64 * 1024 * 1024,
      });
      // A network that was removed since it was listed is left out.
      const complaints = result.stderr
        .split('\n')
        .filter((line) => line !== '' && !GONE.test(line));
      if (result.ended !== null || result.stdoutCut || complaints.length > 0)
        throw failure(result.stderr);
      return (JSON.parse(result.stdout) as RawNetwork[]).map((raw) => ({
        id: raw.Id,
        name: raw.Name,
        labels: raw.Labels ?? {},
        subnets: (raw.IPAM?.Config ?? []).flatMap(({ Subnet }) =>
          Subnet === undefined || Subnet.includes(':') ? [] : [Subnet],
        ),
      }));
    },
    async create({ name, subnet, labels }, signal) {
      const labelled = Object.entries(labels).flatMap(([key, value]) => [
        '--label',
        `${key}=${value}`,
      ]);
      const argv = [
        'network',
        'create',
        '--driver',
        'bridge',
        '--subnet',
        subnet,
        ...labelled,
        name,
      ];
      const result = await cli.run(argv, signal === undefined ? {} : { signal });
      const id = /^[0-9a-f]{64}$/m.exec(result.stdout)?.[0];
      if (result.code === 0 && id !== undefined) return id;
      if (/overlap|conflicts with network/i.test(result.stderr)) return null;
      throw failure(result.stderr);
    },
    async isUsed(id) {
      return (
        (
          await cli.runOrThrow(['ps', '--all', '--quiet', '--filter', `network=${id}`])
        ).stdout.trim() !== ''
      );
    },
    async defaultNetwork(signal) {
      const options = signal === undefined ? {} : { signal };
      const found = await cli.run(
        [
          'network',
          'inspect',
          'bridge',
          '--format',
          '{{index .Options "com.docker.network.bridge.name"}}',
        ],
        options,
      );
      if (found.code !== 0 && GONE.test(found.stderr)) return null;
      if (found.code !== 0) throw failure(found.stderr);
      const format = `{{.ID}} {{.Label "${LABELS.project}"}}`;
      const users = await cli.runOrThrow(
        ['ps', '--all', '--filter', 'network=bridge', '--format', format],
        options,
      );
      const isShared = users.stdout.split('\n').some((line) => /^\S+\s*$/.test(line));
      return { bridge: found.stdout.trim() || 'docker0', isShared };
    },
    async remove(id) {
      const result = await cli.run(['network', 'rm', id]);
      if (result.code === 0 || GONE.test(result.stderr)) return true;
      if (/active endpoints/i.test(result.stderr)) return false;
      throw failure(result.stderr);
    },
  };
}
