# The daemon, and its page, as services of NixOS:
#
#     imports = [ ./contrib/nix/module.nix ];
#     services.shiftboss = {
#       enable = true;
#       settings.lease = "2h";
#       web.enable = true;
#     };
#
# The units are those of contrib/. tests/packages.nix evaluates it, with stand-ins for nixpkgs; no NixOS has run it yet.
{ config, lib, pkgs, utils, ... }:

let
  cfg = config.services.shiftboss;
  toml = pkgs.formats.toml { };
  settings = toml.generate "shiftboss.toml" cfg.settings;
in
{
  options.services.shiftboss = {
    enable = lib.mkEnableOption "the shiftboss daemon, which hands out recurring work";

    package = lib.mkOption {
      type = lib.types.package;
      default = pkgs.callPackage ./package.nix { };
      defaultText = lib.literalExpression "pkgs.callPackage ./package.nix { }";
      description = "The package that has the program and its units.";
    };

    settings = lib.mkOption {
      type = toml.type;
      default = { };
      description = "What stands in /etc/shiftboss.toml: the keys of docs/configuration.md.";
    };

    web = {
      enable = lib.mkEnableOption "the page of the queue, on the loopback";
      flags = lib.mkOption {
        type = lib.types.listOf lib.types.str;
        default = [ ];
        example = [ "--listen" "127.0.0.1:8080" ];
        description = "Flags of `shiftboss web`.";
      };
    };
  };

  config = lib.mkIf cfg.enable {
    services.shiftboss.settings = lib.mapAttrs (_: lib.mkDefault) {
      database = "/var/lib/shiftboss/state.db";
      input_dir = "/var/lib/shiftboss/input";
      socket = "/run/shiftboss/worker.sock";
      socket_mode = "0660";
      socket_group = "shiftboss";
    };

    environment.etc."shiftboss.toml".source = settings;
    environment.systemPackages = [ cfg.package ];

    systemd.packages = [ cfg.package ];
    systemd.services.shiftboss = {
      wantedBy = [ "multi-user.target" ];
      restartTriggers = [ settings ];
    };
    systemd.services.shiftboss-web = lib.mkIf cfg.web.enable {
      wantedBy = [ "multi-user.target" ];
      restartTriggers = [ settings ];
      # The first, empty one takes the unit's own away.
      serviceConfig.ExecStart = [
        ""
        "${lib.getExe cfg.package} web ${utils.escapeSystemdExecArgs cfg.web.flags}"
      ];
    };

    users.users.shiftboss = {
      isSystemUser = true;
      group = "shiftboss";
      home = "/var/lib/shiftboss";
    };
    users.groups.shiftboss = { };
  };
}
