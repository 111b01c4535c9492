// A model version, and each target it was compiled for: two kinds of product, the second a part of the first.

Profile: CuvilModelResource
Parent: DeviceDefinition
Id: cuvil-model-resource
Title: "Model version"
Description: "One version of a medical imaging model as a hospital finds it: what it is for, what it takes and gives, and what identifies it. FHIR has no resource for models; this is the profile behind the flat view ModelResource."
* modifierExtension contains $artifact-status named artifactStatus 1..1
* modifierExtension[artifactStatus] ^short = "Whether the version is in use: active, unknown while a recertification has failed, or retired once withdrawn"
* modifierExtension[artifactStatus] ^isModifierReason = "A retired model version must not be used"
* identifier 3..*
* identifier ^slicing.discriminator.type = #value
* identifier ^slicing.discriminator.path = "system"
* identifier ^slicing.rules = #open
* identifier contains modelVersion 1..1 and release 1..* and modelDigest 1..1
* identifier[modelVersion] ^short = "NAME|VERSION"
* identifier[modelVersion].system 1..1
* identifier[modelVersion].system = $model-version (exactly)
* identifier[modelVersion].value 1..1
* identifier[release] ^short = "SHA3-512 of the signed release statement; one for each release that is registered"
* identifier[release].system 1..1
* identifier[release].system = $release (exactly)
* identifier[release].value 1..1
* identifier[release].value obeys cuvil-sha3-512
* identifier[modelDigest] ^short = "SHA3-512 of the model's file"
* identifier[modelDigest].system 1..1
* identifier[modelDigest].system = $sha3-512 (exactly)
* identifier[modelDigest].value 1..1
* identifier[modelDigest].value obeys cuvil-sha3-512
* description MS
* deviceName 1..*
* modelNumber 1..1
* modelNumber ^short = "Version of the model as its manufacturer counts"
* regulatoryIdentifier MS
* classification MS
* conformsTo MS
* version ^slicing.discriminator.type = #value
* version ^slicing.discriminator.path = "type"
* version ^slicing.rules = #open
* version.type from VersionKindCodes (extensible)
* version contains modelVersion 1..1 and compileConfig 0..1 and hardwareFingerprint 0..1
* version[modelVersion].type 1..1
* version[modelVersion].type = $version#model-version
* version[compileConfig].type 1..1
* version[compileConfig].type = $version#compile-config
* version[compileConfig].value obeys cuvil-sha3-512
* version[hardwareFingerprint].type 1..1
* version[hardwareFingerprint].type = $version#hardware-fingerprint
* property 2..*
* property ^slicing.discriminator.type = #value
* property ^slicing.discriminator.path = "type"
* property ^slicing.rules = #open
* property.type from ModelPropertyCodes (extensible)
* property contains
    inputProfile 1..* and
    outputProfile 1..* and
    outputConfidence 0..1 and
    arithmetic 1..1 and
    equivalence 1..1 and
    nonconformity 0..* and
    withdrawn 0..1
* property[inputProfile] ^short = "One input: name, type and shape"
* property[inputProfile].type = $property#inputProfile
* property[inputProfile].value[x] only string
* property[inputProfile].valueString obeys cuvil-tensor
* property[outputProfile] ^short = "One output: name, type and shape"
* property[outputProfile].type = $property#outputProfile
* property[outputProfile].value[x] only string
* property[outputProfile].valueString obeys cuvil-tensor
* property[outputConfidence] ^short = "Name of the output that states confidence; absent where a model has one output"
* property[outputConfidence].type = $property#outputConfidence
* property[outputConfidence].value[x] only string
* property[arithmetic] ^short = "Named arithmetic: what defines every result down to the bit"
* property[arithmetic].type = $property#arithmetic
* property[arithmetic].value[x] only string
* property[equivalence] ^short = "Verdict and grade of the comparison with an independent reference"
* property[equivalence].type = $property#equivalence
* property[equivalence].value[x] only string
* property[nonconformity] ^short = "Record and finding of a failed recertification, while it is open"
* property[nonconformity].type = $property#nonconformity
* property[nonconformity].value[x] only string
* property[withdrawn] ^short = "Day and reason, once the version was withdrawn"
* property[withdrawn].type = $property#withdrawn
* property[withdrawn].value[x] only string
* hasPart 1..*
* hasPart.reference only Reference(CuvilEngine)
* guideline MS
* guideline.intendedUse MS

Profile: CuvilEngine
Parent: DeviceDefinition
Id: cuvil-engine
Title: "Inference engine"
Description: "A model version compiled for one target: a file whose digests identify it."
* modifierExtension contains $artifact-status named artifactStatus 1..1
* identifier 2..*
* identifier ^slicing.discriminator.type = #value
* identifier ^slicing.discriminator.path = "system"
* identifier ^slicing.rules = #open
* identifier contains sha3 1..1 and sha256 1..1
* identifier[sha3] ^short = "SHA3-512 of the engine's file"
* identifier[sha3].system 1..1
* identifier[sha3].system = $sha3-512 (exactly)
* identifier[sha3].value 1..1
* identifier[sha3].value obeys cuvil-sha3-512
* identifier[sha256] ^short = "SHA-256 of the engine's file"
* identifier[sha256].system 1..1
* identifier[sha256].system = $sha-256 (exactly)
* identifier[sha256].value 1..1
* identifier[sha256].value obeys cuvil-sha-256
* deviceName 1..*
* version ^slicing.discriminator.type = #value
* version ^slicing.discriminator.path = "type"
* version ^slicing.rules = #open
* version.type from VersionKindCodes (extensible)
* version contains modelVersion 1..1 and compileConfig 1..1
* version[modelVersion].type 1..1
* version[modelVersion].type = $version#model-version
* version[compileConfig].type 1..1
* version[compileConfig].type = $version#compile-config
* version[compileConfig].value obeys cuvil-sha3-512
* property 2..*
* property ^slicing.discriminator.type = #value
* property ^slicing.discriminator.path = "type"
* property ^slicing.rules = #open
* property.type from ModelPropertyCodes (extensible)
* property contains target 1..1 and arithmetic 1..1
* property[target] ^short = "Target triple, as in x86_64-linux-musl"
* property[target].type = $property#target
* property[target].value[x] only string
* property[arithmetic].type = $property#arithmetic
* property[arithmetic].value[x] only string

Profile: CuvilDeployedEngine
Parent: Device
Id: cuvil-deployed-engine
Title: "Deployed engine"
Description: "An engine on one machine, as the machine itself stated and signed it."
* identifier 1..*
* identifier ^slicing.discriminator.type = #value
* identifier ^slicing.discriminator.path = "system"
* identifier ^slicing.rules = #open
* identifier contains deployment 1..1
* identifier[deployment] ^short = "SHA3-512 of the signed deployment statement"
* identifier[deployment].system 1..1
* identifier[deployment].system = $deployment (exactly)
* identifier[deployment].value 1..1
* identifier[deployment].value obeys cuvil-sha3-512
* definition 1..1
* definition ^short = "The engine that is deployed"
* status 1..1
* version ^slicing.discriminator.type = #value
* version ^slicing.discriminator.path = "type"
* version ^slicing.rules = #open
* version.type from VersionKindCodes (extensible)
* version contains modelVersion 1..1 and hardwareFingerprint 1..1
* version[modelVersion].type 1..1
* version[modelVersion].type = $version#model-version
* version[hardwareFingerprint] ^short = "SHA3-512 over serial number and network addresses; asserted by the machine"
* version[hardwareFingerprint].type 1..1
* version[hardwareFingerprint].type = $version#hardware-fingerprint
* version[hardwareFingerprint].value obeys cuvil-sha3-512
* property 1..*
* property ^slicing.discriminator.type = #value
* property ^slicing.discriminator.path = "type"
* property ^slicing.rules = #open
* property.type from ModelPropertyCodes (extensible)
* property contains fingerprintGrade 1..1
* property[fingerprintGrade].type = $property#fingerprintGrade
* property[fingerprintGrade].value[x] only string
