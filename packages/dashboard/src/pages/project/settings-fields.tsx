/** The controls of the settings, with proposals from the repository. */
import type { Project } from '@berth/wire/project';
import { originOf } from '../../parts/config-origin.ts';
import { type Draft, type FieldOfForm, FORM, type FormField } from '../../parts/project-fields.ts';
import { hasRole, useMe } from '../../parts/permissions.ts';
import { LookStatus, useRepositoryLook } from '../../parts/repository.tsx';
import { Columns } from '../../ui/layout.tsx';
import { Control, type ControlProps } from './settings-control.tsx';

/** Returns whether a control is short: short controls share a line, the others take a full line. */
const isShort = ({ kind }: FieldOfForm): boolean =>
  kind === 'text' || kind === 'number' || kind === 'choice';

/** Fields that only admins change. */
const FOR_ADMINS: readonly FormField[] = ['allow_exec', 'exec_role'];

type Proposal = Pick<ControlProps, 'suggestions' | 'onFocus' | 'onBlur' | 'help'>;

type SettingsFieldsProps = {
  project: Project;
  draft: Draft;
  onChange: (draft: Draft) => void;
  errors: Readonly<Record<string, string>>;
  /**
   * True if the person can change the project: then a builder reads the repository for proposals.
   */
  canLook: boolean;
};
export function SettingsFields({ project, draft, onChange, errors, canLook }: SettingsFieldsProps) {
  const look = useRepositoryLook(project);
  const isAdmin = hasRole(useMe().role, 'admin');
  const findings = look.state?.url === draft.git_url ? look.found : null;
  const ports =
    findings?.dockerfiles.find(({ path }) => path === draft.dockerfile_path)?.ports ?? [];
  /** Requests proposals when a field gets the focus, and after a new address or branch. */
  const ask = (): void => {
    if (canLook && draft.branch !== '') void look.ask(draft.git_url, draft.branch);
  };
  const proposals: Partial<Record<FormField, Proposal>> = {
    git_url: { onFocus: ask, onBlur: ask },
    branch: { suggestions: findings?.branches ?? [], onFocus: ask, onBlur: ask },
    dockerfile_path: {
      suggestions: findings?.dockerfiles.map(({ path }) => path) ?? [],
      onFocus: ask,
    },
    container_port:
      ports.length === 0 ? {} : { help: `the Dockerfile exposes ${ports.join(', ')}` },
  };
  /** A field that comes from berth.toml says so instead of its help. */
  const fromFile = (name: FormField): Proposal => {
    const origin = originOf(project, name);
    return origin === null ? {} : { help: `${origin}; change it there` };
  };
  const control = (field: FieldOfForm) => (
    <Control
      key={field.name}
      field={field}
      value={draft[field.name]}
      onChange={(value) => onChange({ ...draft, [field.name]: value } as Draft)}
      error={errors[field.name]}
      {...proposals[field.name]}
      {...fromFile(field.name)}
    />
  );
  /** Hides build arguments from a person who may not read them, and what only admins change. */
  const isVisible = ({ kind, name }: FieldOfForm): boolean =>
    (kind !== 'pairs' || !project.env_hidden) && (isAdmin || !FOR_ADMINS.includes(name));
  return (
    <>
      <Columns most={2} align="end">
        {FORM.filter((field) => isShort(field) && isVisible(field)).map(control)}
      </Columns>
      <LookStatus look={look} url={draft.git_url} />
      {FORM.filter((field) => !isShort(field) && isVisible(field)).map(control)}
    </>
  );
}
