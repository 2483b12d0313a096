/** The draft of the form for a new project, and the values that the form sends. */
import { defined } from '@berth/kit/defined';
import { PROJECT_DEFAULTS, type ProjectCreate } from '@berth/wire/project';
import type { RepositoryFound } from '@berth/wire/repository-look';
import { proposedDockerfile } from '../../parts/repository.tsx';

/** Null values are not typed yet: the form shows a builder's proposal or a default. */
export type NewProjectDraft = {
  gitUrl: string;
  name: string | null;
  prefix: string | null;
  branch: string | null;
  dockerfile: string | null;
  /** `port: null` means not typed; `value: null` means that the field is empty. */
  port: { value: number | null } | null;
  requiresAuth: boolean;
  /** Ids of the datasets. */
  datasets: string[];
};

export const EMPTY_DRAFT: NewProjectDraft = {
  gitUrl: '',
  name: null,
  prefix: null,
  branch: null,
  dockerfile: null,
  port: null,
  requiresAuth: false,
  datasets: [],
};

/** Converts the repository's name to a DNS label. */
const repositoryName = (gitUrl: string): string =>
  (/([^/:]+?)(?:\.git)?\/*$/.exec(gitUrl)?.[1] ?? '')
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63);

/** Returns whether a value is missing that a repository look can propose. */
export const needsProposals = ({ branch, dockerfile, port }: NewProjectDraft): boolean =>
  branch === null || dockerfile === null || port === null;

/**
 * Returns the values of the form: typed values first, then a builder's proposals, then defaults.
 */
export function valuesOf(draft: NewProjectDraft, found: RepositoryFound | null) {
  const name = draft.name ?? repositoryName(draft.gitUrl);
  const dockerfile =
    draft.dockerfile ??
    (found === null ? undefined : proposedDockerfile(found)?.path) ??
    PROJECT_DEFAULTS.dockerfile_path;
  /** Ports that the chosen Dockerfile exposes. */
  const ports = found?.dockerfiles.find(({ path }) => path === dockerfile)?.ports ?? [];
  return {
    name,
    prefix: draft.prefix ?? name,
    branch: draft.branch ?? found?.branch ?? PROJECT_DEFAULTS.branch,
    dockerfile,
    ports,
    port: draft.port === null ? (ports[0] ?? PROJECT_DEFAULTS.container_port) : draft.port.value,
  };
}

export function bodyOf(draft: NewProjectDraft, found: RepositoryFound | null): ProjectCreate {
  const { name, prefix, branch, dockerfile, port } = valuesOf(draft, found);
  return {
    name,
    git_url: draft.gitUrl,
    domain_prefix: prefix,
    branch,
    dockerfile_path: dockerfile,
    ...defined({ container_port: port ?? undefined }),
    auth_required: draft.requiresAuth,
    datasets: draft.datasets.map((dataset_id) => ({ dataset_id, mode: 'dependency' as const })),
  };
}
