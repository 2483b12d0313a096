/** Networks of the container engine, in the agent's words. */
import type { DockerCli } from './docker-cli.ts';
import { classify, lastWords, PULL_FAILURES, TaskFailure } from './failures.ts';

export type Network = { id: string; name: string; labels: Record<string, string> /** IPv4, as CIDR. */; subnets: readonly string[] };

export type DockerNetworks = {
  /** All of them, whoever made them. */
  list(signal?: AbortSignal): Promise<Network[]>;
  /** Its id; null when the addresses overlap with those of another network. */
  create(network: { name: string; subnet: string; labels: Record<string, string> }, signal?: AbortSignal): Promise<string | null>;
  /** Whether any container has it, one that does not run too: it could not be started again without it. */
  isUsed(id: string): Promise<boolean>;
  /** False when the engine refuses because it is in use. */
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
    new TaskFailure(classify(PULL_FAILURES, stderr.replaceAll(/not found/g, 'gone'), 'task_failed'), lastWords(stderr));
  return {
    async list(signal) {
      const given = signal === undefined ? {} : { signal };
      const ids = (await cli.ok(['network', 'ls', '--quiet', '--no-trunc'], given)).stdout.split('\n').filter((id) => id !== '');
      const result = await cli.run(['network', 'inspect', ...ids], { ...given, keep: 64 * 1024 * 1024 });
      // One that went away since it was listed is left out.
      const complaints = result.stderr.split('\n').filter((line) => line !== '' && !GONE.test(line));
      if (result.ended !== null || result.stdoutCut || complaints.length > 0) throw failure(result.stderr);
      return (JSON.parse(result.stdout) as RawNetwork[]).map((raw) => ({
        id: raw.Id,
        name: raw.Name,
        labels: raw.Labels ?? {},
        subnets: (raw.IPAM?.Config ?? []).flatMap(({ Subnet }) => (Subnet === undefined || Subnet.includes(':') ? [] : [Subnet])),
      }));
    },
    async create({ name, subnet, labels }, signal) {
      const labelled = Object.entries(labels).flatMap(([key, value]) => ['--label', `${key}=${value}`]);
      const argv = ['network', 'create', '--driver', 'bridge', '--subnet', subnet, ...labelled, name];
      const result = await cli.run(argv, signal === undefined ? {} : { signal });
      const id = /^[0-9a-f]{64}$/m.exec(result.stdout)?.[0];
      if (result.code === 0 && id !== undefined) return id;
      if (/overlap|conflicts with network/i.test(result.stderr)) return null;
      throw failure(result.stderr);
    },
    async isUsed(id) {
      return (await cli.ok(['ps', '--all', '--quiet', '--filter', `network=${id}`])).stdout.trim() !== '';
    },
    async remove(id) {
      const result = await cli.run(['network', 'rm', id]);
      if (result.code === 0 || GONE.test(result.stderr)) return true;
      if (/active endpoints/i.test(result.stderr)) return false;
      throw failure(result.stderr);
    },
  };
}
